"""TLS towards clients: builds the listeners' context from `--tls-certificate` and related options.

Files that cannot be read, do not belong together, have expired or are not yet valid give a one-line error each, before
anything is bound. To check whether clients would accept the certificate, OpenSSL itself performs a handshake in memory
with a client that trusts it, so only the certificate's dates and purpose can fail.
"""

import ssl

from muster.events.kafka.tls_files import BadTlsFile, FilesContext, NamedFile, present, trust


class BadTls(Exception):
    """The TLS files are unusable; the message names the option, the file and the problem."""


def client_context(certificate: NamedFile, key: NamedFile, client_ca: NamedFile | None) -> ssl.SSLContext:
    """Return a context for TLS 1.2 or newer. `client_ca`: clients need a certificate signed by it. Raises BadTls."""
    try:
        context = _serving(certificate, key)
        _show_in_memory(context, certificate)
        if client_ca is not None:
            trust(context, *client_ca)
            context.verify_mode = ssl.CERT_REQUIRED
    except BadTlsFile as bad:
        raise BadTls(str(bad)) from bad
    return context


def _serving(certificate: NamedFile, key: NamedFile) -> ssl.SSLContext:
    context = FilesContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    present(context, certificate, key, pass_phrase=("give one without a pass phrase", None))
    return context


def _show_in_memory(serving: ssl.SSLContext, certificate: NamedFile) -> None:
    """Try a handshake in memory. Raises BadTls."""
    trusting = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    trusting.check_hostname = False
    trusting.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    trust(trusting, *certificate)
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    client = trusting.wrap_bio(to_client, to_server)
    server = serving.wrap_bio(to_server, to_client, server_side=True)
    for end in (client, server, client):
        try:
            end.do_handshake()
        except ssl.SSLWantReadError:
            continue
        except ssl.SSLCertVerificationError as error:
            name, file = certificate
            raise BadTls(f"{name}={file}: no client would accept it: {error.verify_message}") from error
