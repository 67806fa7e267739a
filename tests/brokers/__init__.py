"""Real Kafka brokers for tests, benchmarks and the demo.

It starts a real Kafka, and Kafka's own Java tools to use with it (or with Muster). It knows nothing of Muster.

`running_broker` tries these methods in order and uses the first that works.

1. `bootstrap`: the broker named by `MUSTER_TEST_BOOTSTRAP`. `settings` are not applied to it.
2. `container`: testcontainers, if there is a Docker engine, with the image named by `MUSTER_KAFKA_IMAGE`
   (`container.py`), or one built here from Kafka's jars (`image.py`).
3. `process`: a plain child process, from Kafka's jars and a Java runtime installed by pip (`process.py`).

A broker that is killed and restarted, and whose log is read, is always a separate process (`restartable.py`), and so
are the nodes of a cluster (`cluster.py`), and a broker with authentication and authorization (`secured.py`).

`broker.py`, `certificates.py`, `child.py` and `leash.py` are imported by tests that need no broker, so they import no
package of the groups `brokers` and `demo` in pyproject.toml.

Nothing is skipped silently: `Broker.how` says what was used and what was skipped, `NoBroker` why nothing worked.

    from tests.brokers.choice import running_broker

    with running_broker(settings={"min.compaction.lag.ms": "1000"}) as broker:
        print(broker.bootstrap, broker.how)
"""
