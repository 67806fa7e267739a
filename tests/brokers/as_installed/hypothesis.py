"""First in the path of child processes: they have no Hypothesis, as where Muster is installed. kio imports it if it can.

That is a quarter of the processor time of each start.
"""

raise ModuleNotFoundError("No module named 'hypothesis'", name="hypothesis")
