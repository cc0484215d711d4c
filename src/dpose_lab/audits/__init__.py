"""Audits that research needs: mechanisms, membership by many runs, releasing commands."""
