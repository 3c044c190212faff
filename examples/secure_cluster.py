"""A cluster for friends only: TLS with mutual authentication, and who is refused.

Whoever reaches an open Dask scheduler or worker can run code on it. Here every party has a
certificate of one authority and asks for the other's: the scheduler and two workers, which are
started by the commands that one would type on three machines, and the client. Certificates and
keys are made on the fly, in a folder that nobody else can read; `docs/deployment.md` tells what to
change for real machines.

1. A curve is fitted over items that are placed on the workers, which the client calls directly;
   value and gradient are compared bit by bit with those of a fit without a cluster.
2. Four strangers knock: a client without a certificate, one with a certificate of another
   authority, one that does not encrypt, and a worker of another authority.

    python examples/secure_cluster.py

The script exits with an error where the bits differ or a stranger is let in.
"""

import os

# One BLAS thread, as Dask gives its workers.
os.environ.update(OMP_NUM_THREADS="1", OPENBLAS_NUM_THREADS="1", MKL_NUM_THREADS="1")

import contextlib
import datetime
import inspect
import socket
import ssl
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

import dask
import numpy as np
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID
from distributed import Client
from distributed.security import Security
from scipy.optimize import minimize

import daskgrad as dg

PATIENCE = 60.0  # seconds in which the cluster starts, or a stranger gives up
KNOCK = "3s"  # how long a stranger tries to connect

# -------------------------------------------------------------------------------- certificates


class Identity(NamedTuple):
    """The files by which a party proves who it is: a certificate, and its private key."""

    certificate: Path
    key: Path


class Authority:
    """Signs the certificates of one cluster. Its own one is public; its key never leaves here."""

    def __init__(self, name, folder):
        self._folder = folder
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = named(name)
        signed = self._signed(self._name, self._key.public_key(), is_authority=True)
        self.certificate = folder / f"{name}.pem"
        self.certificate.write_bytes(signed.public_bytes(serialization.Encoding.PEM))

    def identity(self, name):
        """A new key, which only its owner can read, and a certificate for it."""
        key = ec.generate_private_key(ec.SECP256R1())
        signed = self._signed(named(name), key.public_key(), is_authority=False)
        made = Identity(self._folder / f"{name}.pem", self._folder / f"{name}.key")
        made.certificate.write_bytes(signed.public_bytes(serialization.Encoding.PEM))
        write_private(made.key, pem(key))
        return made

    def _signed(self, subject, public_key, is_authority):
        """With what Python's own contexts demand since 3.13: identifiers of keys, and their use."""
        now = datetime.datetime.now(datetime.UTC)
        builder = (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(self._name)
            .public_key(public_key)
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - datetime.timedelta(minutes=5))  # clocks differ
            .not_valid_after(now + datetime.timedelta(days=1))
            .add_extension(x509.BasicConstraints(is_authority, None), critical=True)
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(public_key), critical=False)
            .add_extension(
                x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key()),
                critical=False,
            )
        )
        if is_authority:
            names = inspect.signature(x509.KeyUsage).parameters
            signs = x509.KeyUsage(**{name: name == "key_cert_sign" for name in names})
            builder = builder.add_extension(signs, critical=True)
        if not is_authority:  # workers call workers: each of them is server and client
            usage = [ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH]
            builder = builder.add_extension(x509.ExtendedKeyUsage(usage), critical=False)
        return builder.sign(self._key, hashes.SHA256())


def named(name):
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])


def pem(key):
    return key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )


def write_private(path, content):
    """Writes a file that never was readable by others."""
    with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
        file.write(content)


def security_of_client(authority_certificate, identity):
    return Security(
        require_encryption=True,
        tls_ca_file=str(authority_certificate),
        tls_client_cert=str(identity.certificate),
        tls_client_key=str(identity.key),
    )


# --------------------------------------------------------------------------------- the cluster


@contextlib.contextmanager
def running(folder, authority, identity, *command):
    """A command of Dask's, as it would be typed on a machine of its own; ends with the block."""
    tls = ("--tls-ca-file", authority.certificate)
    mine = ("--tls-cert", identity.certificate, "--tls-key", identity.key)
    line = ["dask", *command, *tls, *mine]
    print("  $", " ".join(map(str, line)).replace(f"{folder}/", ""))
    process = subprocess.Popen(
        [sys.executable, "-m", *map(str, line)], cwd=folder, stderr=subprocess.DEVNULL
    )
    try:
        yield process
    finally:
        process.terminate()
        process.wait(PATIENCE)


def scheduler_command():
    loopback = ("--host", "127.0.0.1", "--port", "0", "--dashboard-address", "127.0.0.1:0")
    return ("scheduler", *loopback, "--protocol", "tls", "--scheduler-file", "scheduler.json")


def worker_command():
    loopback = ("--host", "127.0.0.1", "--dashboard-address", "127.0.0.1:0", "--nthreads", "1")
    return ("worker", "--scheduler-file", "scheduler.json", *loopback)


@contextlib.contextmanager
def cluster(folder, authority):
    """A scheduler and two workers, and a client that belongs to them."""
    scheduler, worker = authority.identity("scheduler"), authority.identity("worker")
    member = authority.identity("client")
    file = folder / "scheduler.json"
    with running(folder, authority, scheduler, *scheduler_command()):
        wait_until(file.exists)
        with (
            running(folder, authority, worker, *worker_command()),
            running(folder, authority, worker, *worker_command()),
            Client(
                scheduler_file=str(file),
                security=security_of_client(authority.certificate, member),
                timeout=PATIENCE,
            ) as client,
        ):
            client.wait_for_workers(2, timeout=PATIENCE)
            yield client


def wait_until(condition):
    deadline = time.monotonic() + PATIENCE
    while not condition():
        if time.monotonic() > deadline:
            sys.exit(f"secure_cluster.py: nothing happened for {PATIENCE:g} seconds")
        time.sleep(0.1)


# ------------------------------------------------------------------------------------- the fit


def misfit(sample, parameters):
    """Of one sample's decay, whose rate all samples share, and whose level depends on its mass."""
    mass, times, counts = sample
    level = mass * np.exp(parameters[0])
    return np.sum((counts - level * np.exp(-np.exp(parameters[1]) * times)) ** 2)


def make_samples(count):
    random = np.random.default_rng(0)
    for mass in random.uniform(0.5, 2.0, count):
        times = np.sort(random.uniform(0.0, 3.0, random.integers(5, 40)))
        noise = 0.05 * random.standard_normal(len(times))
        yield mass, times, 2.0 * mass * np.exp(-0.7 * times) + noise


def fit(samples):
    """The estimates, and value and gradient there."""
    objective = dg.value_and_grad(lambda x: dg.map_sum(misfit, samples, x))
    found = minimize(objective, np.zeros(2), jac=True)
    return found.x, *objective(found.x)


def fit_and_compare(client):
    samples = list(make_samples(200))
    estimates, value, gradient = fit(samples)
    with dg.place(samples) as shards:
        addresses = [plan.worker for plan in shards.plan]
        secured = fit(shards)
    if not all(address.startswith("tls://") for address in addresses):
        sys.exit(f"secure_cluster.py: a worker is called without encryption: {addresses}")
    for mine, right in zip(secured, (estimates, value, gradient), strict=True):
        if np.asarray(mine).tobytes() != np.asarray(right).tobytes():
            sys.exit("secure_cluster.py: the fit on the cluster has other bits")
    level, rate = np.exp(estimates)
    print(f"  level {level:.4f} and rate {rate:.4f}, misfit {value:.6f}")
    print(f"  the workers were called at {' and '.join(addresses)}")
    print("  estimates, misfit and gradient have the bits of the fit without a cluster")


# ------------------------------------------------------------------------------- the strangers


def knock_without_certificate(address, authority):
    """Dask's own client does not even try that: so this is TLS as such."""
    host, port = address.removeprefix("tls://").split(":")
    context = ssl.create_default_context(cafile=authority.certificate)
    context.check_hostname = False
    with (
        socket.create_connection((host, int(port)), timeout=PATIENCE) as plain,
        context.wrap_socket(plain) as encrypted,
    ):
        encrypted.recv(1)  # the server's first word, or why there is none


def knock_as_stranger(address, authority, stranger):
    """It knows the cluster's authority, whose certificate is public, and has one of another."""
    with Client(address, security=security_of_client(authority.certificate, stranger)):
        pass


def knock_unencrypted(address):
    with Client(address.replace("tls://", "tcp://")):
        pass


def require_refusal(who, kind, knock, *args):
    """``kind``: of the error that a refusal is."""
    try:
        with dask.config.set({"distributed.comm.timeouts.connect": KNOCK}):
            knock(*args)
    except kind as error:
        print(f"  refused: {who} ({type(error).__name__})")
    else:
        sys.exit(f"secure_cluster.py: {who} was let in")


def require_no_other_worker(client, folder, authority, stranger):
    """A worker of another authority tries for five seconds, and ends with an error."""
    command = (*worker_command(), "--no-nanny", "--death-timeout", "5s")
    with running(folder, authority, stranger, *command) as process:
        status = process.wait(PATIENCE)
    if status == 0 or len(client.scheduler_info(n_workers=-1)["workers"]) != 2:
        sys.exit("secure_cluster.py: a worker of another authority was let in")
    print(f"  refused: a worker of another authority (it ended with status {status})")


def show_refusals(client, folder, authority):
    stranger = Authority("other-authority", folder).identity("stranger")
    scheduler = client.scheduler.address
    worker = next(iter(client.scheduler_info(n_workers=-1)["workers"]))
    for place, address in (("scheduler", scheduler), ("worker", worker)):
        who = f"a client without a certificate, at the {place}"
        require_refusal(who, ssl.SSLError, knock_without_certificate, address, authority)
    who = "a client with a certificate of another authority"
    require_refusal(who, OSError, knock_as_stranger, scheduler, authority, stranger)
    require_refusal("a client that does not encrypt", OSError, knock_unencrypted, scheduler)
    require_no_other_worker(client, folder, authority, stranger)


def main():
    sys.stdout.reconfigure(line_buffering=True)  # progress shows through a pipe, too
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        print("A cluster whose parties know each other by certificates of one authority:")
        authority = Authority("authority", folder)
        with cluster(folder, authority) as client:
            print("A fit over 200 samples that are placed on its workers:")
            fit_and_compare(client)
            print("Strangers:")
            show_refusals(client, folder, authority)


if __name__ == "__main__":
    main()
