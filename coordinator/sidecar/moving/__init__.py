"""Which groups are ours, and how a group moves to or from the cluster upstream.

heard.py        Which members of groups that are upstream's were heard of here lately: those that are connected to
                this sidecar.
in_front.py     Groups in front of other groups: what a layer does not answer itself, and what it does beside the
                requests.
move.py         One group's move to or from the cluster upstream: who is to be told, who was, and who has come back.
moves.py        Live groups that move to or from the cluster upstream.
owned.py        The groups as the handlers of a sidecar know them: the runtime's, with what upstream has to know
                first.
steered.py      The setting `members.coordinator`, with which an administrator has a group move, and is told how far
                it is.
under_way.py    Commits that were given to a broker under a shadow's name, and are not answered yet.
whose.py        Whose group it is: ours, or the cluster's.
"""
