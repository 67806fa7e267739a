"""Settings of both modes, and what they name: addresses, ports, certificates.

addresses.py          HOST:PORT, as settings have it.
broker_ports.py       The ports of the brokers' listeners: the same after every restart, whatever order the brokers
                      appear in.
certificates.py       Certificates that are renewed while the process runs: read again, without a restart.
file_watch.py         Watching the file of an event log: whether its disk answers, and whether it is still where it
                      was opened.
kafka_settings.py     The settings that are Kafka's, by Kafka's names and with its defaults.
loading.py            Settings from flags, `MUSTER_*` variables and a TOML file: gathered, and checked against each
                      other.
options.py            The declaration of a setting, with its type, default, limits and help.
peers.py              The settings of several sidecars of one log: where they reach each other, and how they prove who
                      they are.
problems.py           Everything that is wrong with settings, gathered.
settings_file.py      The file of settings, read, with its names checked.
setting_sources.py    Where a setting came from: the name of its flag, variable or key in the file.
settings.py           The settings of `muster serve`: each declared once, here or in sidecar.py, with its type,
                      default and help.
sidecar.py            The settings of the sidecar: the cluster upstream, the listeners, the groups it may own.
sidecar_tls.py        TLS towards clients: the files of `--tls-certificate` and the options beside it, as the
                      context of the listeners.
"""
