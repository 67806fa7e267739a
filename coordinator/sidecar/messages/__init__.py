"""What is read of Kafka's messages, and written otherwise, on their way through.

bounded.py         How many entries a relayed request may have whose answer is rewritten here (rewriting.py), one
                   for each entry.
plan.py            What is done with a request of a client's, as its API, its version and its beginning tell.
produce.py         Produce (key 0) on its way through: whether it will be answered, and whether it is for topics
                   that are Muster's own.
questions.py       Requests of our own on a client's connection, and kio's messages as the bytes that a conversation
                   takes.
requests.py        The beginning of a request that is relayed, read while the end of it may still be on its way.
reserved.py        What is Muster's alone in the cluster behind it: the topics of its event log, and its owners'
                   transactional ids.
rewriting.py       Answers that are changed on their way to the client: those that carry addresses of brokers, and
                   the versions offered.
under_shadow.py    A commit under another name: generation, member id and instance id of a request replaced, all
                   else left as it is.
"""
