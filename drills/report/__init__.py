"""The report of a drill: its values, as JSON, tables, and a page on the parts of replay's report."""
