"""Reports: tables, figures and notes, on a page, on a terminal and as Markdown. Knows no model."""
