"""First in the path of child processes, which have no Hypothesis, as an installed Muster: kio imports it where it is.

That is a quarter of the processor time of each start.
"""

raise ModuleNotFoundError("No module named 'hypothesis'", name="hypothesis")
