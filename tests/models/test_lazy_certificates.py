import os
import subprocess
import sys

from tests.models.test_wire_model import self_signed

PROGRAM = """
import ssl
from deputy.models.lazy_certificates import import_aiohttp

import_aiohttp()
from aiohttp import connector

for context in (connector._SSL_CONTEXT_VERIFIED, connector._SSL_CONTEXT_UNVERIFIED):
    before = context.cert_store_stats()["x509"]
    context.wrap_bio(ssl.MemoryBIO(), ssl.MemoryBIO(), server_hostname="localhost")
    print(before, context.cert_store_stats()["x509"], type(context).__name__, context.verify_mode.name)
print(ssl.create_default_context().cert_store_stats()["x509"])
"""


def test_the_certificates_are_read_by_the_first_tls_connection_and_not_by_the_import(tmp_path):
    environ = {**os.environ, "SSL_CERT_FILE": str(self_signed(tmp_path))}
    run = subprocess.run([sys.executable, "-c", PROGRAM], env=environ, capture_output=True, text=True, check=True)
    contexts = ["0 1 SSLContext CERT_REQUIRED", "0 1 SSLContext CERT_NONE"]
    assert run.stdout.splitlines() == [*contexts, "1"], "and what others make is as it always was"
