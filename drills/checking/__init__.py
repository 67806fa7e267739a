"""Looking at what there is, beside what the members were told: in the log, and at the service.

log.py      reads what the log has had since the drill began
offsets.py  fetches committed offsets, and asks which groups there are
"""
