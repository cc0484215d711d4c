"""Audits for research: of mechanisms, of membership by many runs, and of releasing commands."""
