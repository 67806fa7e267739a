"""The report of a drill: its values, as JSON, as tables, and as a page with the parts of replay's report."""
