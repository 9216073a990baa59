# SPDX-License-Identifier: Apache-2.0
"""What every end-to-end test may use.

A test asks for what it needs by fixture. What the machine cannot give makes the test skip, or
fail when CI=true, so that a green run in CI means that everything ran.
"""

import contextlib
import fcntl
import os
import pathlib
import random
import re
import shlex
import socket
import subprocess

import pytest

ROOT = pathlib.Path(__file__).resolve().parent.parent
SHARED = pathlib.Path(os.environ.get("COMMUTATOR_SHARED", ROOT.parent / "shared"))
BIN = pathlib.Path(os.environ.get("BUILD", ROOT / "build")) / "bin"
CLUSTER = ROOT / "e2e/cluster/cluster"
# For kubectl, helm and the API servers of tests, which live for seconds: a fifth of their time would be collecting garbage.
os.environ.setdefault("GOGC", "400")


def unavailable(why):
    """Ends the test because the machine lacks something."""
    if os.environ.get("CI") == "true":
        pytest.fail(f"{why} (CI=true: nothing may be skipped)", pytrace=False)
    pytest.skip(why)


def reference_python(version="0.9.0"):
    """Python of an environment with this release of the reference."""
    made = run(ROOT / "e2e/tools/reference-venv", version, check=False)
    if made.returncode != 0:
        unavailable(f"ai-dynamo {version} cannot be installed: {made.stderr[-300:]}")
    return made.stdout.strip()


def run(*command, check=True, **options):
    """Runs a command to its end and returns it with its output as text."""
    done = subprocess.run([str(word) for word in command], text=True, stdout=subprocess.PIPE,
                          stderr=subprocess.PIPE, **options)
    if check and done.returncode != 0:
        pytest.fail(f"{shlex.join(map(str, command))}: exit {done.returncode}\n{done.stdout}{done.stderr}")
    return done


class Kube:
    """An API server and the clients for it."""

    def __init__(self, kubeconfig, tools):
        self.kubeconfig = kubeconfig
        self._tools = tools

    def kubectl(self, *words, **options):
        return run(self._tools / "kubectl", "--kubeconfig", self.kubeconfig, *words, **options)

    def helm(self, *words, **options):
        return run(self._tools / "helm", "--kubeconfig", self.kubeconfig, *words, **options)

    def apply_crds(self):
        self.kubectl("apply", "--server-side", "-f", ROOT / "crds")
        self.kubectl("wait", "--for=condition=Established", "--timeout=120s", "-f", ROOT / "crds")

    def kinds(self, api_version="nvidia.com/v1alpha1"):
        """A function from a kind to its client (get, create, patch, watch ...)."""
        from kubernetes import client, config, dynamic
        configuration = client.Configuration()
        config.load_kube_config(self.kubeconfig, client_configuration=configuration)
        api = dynamic.DynamicClient(client.ApiClient(configuration))
        return lambda kind: api.resources.get(api_version=api_version, kind=kind)

    def until(self, kind, namespace, holds, seconds=60, api_version="nvidia.com/v1alpha1"):
        """Follows the objects of a kind until holds({name: object}), and returns them."""
        resource = self.kinds(api_version)(kind)
        listed = resource.get(namespace=namespace)
        objects = {item.metadata.name: item.to_dict() for item in listed.items}
        if holds(objects):
            return objects
        for event in resource.watch(namespace=namespace, timeout=seconds,
                                    resource_version=listed.metadata.resourceVersion):
            name = event["raw_object"]["metadata"]["name"]
            if event["type"] == "DELETED":
                objects.pop(name, None)
            else:
                objects[name] = event["raw_object"]
            if holds(objects):
                return objects
        pytest.fail(f"{kind} in {namespace}: not as expected after {seconds} s")


# Below the range of which the kernel takes ports for outgoing connections, and below a cluster's NodePorts.
PORTS = range(10000, 30000)
_given = set()
# A lock on byte N is a claim to port N, while its process lives: other tests run beside it. Unit tests do the same.
_claims = open(f"/tmp/commutator-ports.{os.getuid()}", "ab")


def free_port():
    """A port for a program that cannot tell which one it got, or that has to come back on the one it had.

    Nothing else takes it meanwhile: one that bind() chose would be free to every connection of every other
    program, and a client that tries again and again may even be connected to itself by it.
    """
    while True:
        port = random.choice(PORTS)
        if port in _given:
            continue
        with socket.socket() as probe, contextlib.suppress(OSError):
            fcntl.lockf(_claims, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, port)
            _given.add(port)
            probe.bind(("", port))
            return port


def program(name):
    """Path of one of our programs."""
    if not (BIN / name).exists():
        unavailable(f"no {BIN / name}; run: make all")
    return BIN / name


@contextlib.contextmanager
def api_server(tools, *flags):
    """A fresh API server without nodes and objects; --controllers adds the controller manager."""
    # The command inside tells where the server is and then lives as long as our end of its input.
    with subprocess.Popen([CLUSTER, "api", *flags, "--", "sh", "-c", 'echo "$KUBECONFIG"; exec cat'], text=True,
                          stdin=subprocess.PIPE, stdout=subprocess.PIPE) as server:
        try:
            kubeconfig = server.stdout.readline().strip()
            if not kubeconfig:
                pytest.fail("the API server did not start")
            yield Kube(kubeconfig, tools)
        finally:
            server.stdin.close()


@pytest.fixture(scope="session")
def shared():
    """The folder of captures and reference data beside the repository."""
    if not SHARED.is_dir():
        unavailable(f"no {SHARED}")
    return SHARED


@pytest.fixture(scope="session")
def tools():
    """The folder of the programs that the cluster harness builds: kubectl, helm ..."""
    path = pathlib.Path(run(CLUSTER, "build", "--path").stdout.strip())
    if not path.is_dir():
        unavailable(f"the cluster's programs are not built; run: {CLUSTER} build")
    return path


@pytest.fixture(scope="session")
def api(tools):
    """An API server with our CRDs, for the session."""
    with api_server(tools) as kube:
        kube.apply_crds()
        yield kube


@pytest.fixture(scope="session")
def cluster(tools):
    """The running cluster. The tests must run in its network, so that they reach pods and Services."""
    kube = Kube(os.environ.get("KUBECONFIG", ""), tools)
    if kube.kubectl("get", "--raw", "/readyz", "--request-timeout=5s", check=False).returncode != 0:
        unavailable(f"no cluster here; run: {CLUSTER} up, then the tests through {CLUSTER} in")
    return kube


@pytest.fixture(scope="session")
def platform(cluster):
    """The cluster with our chart installed for every namespace."""
    from live import Platform
    return Platform(cluster).ready()


@pytest.fixture
def namespace(platform, request):
    """A namespace of this test's own."""
    with platform.namespace("test-" + re.sub(r"\W|_", "-", request.node.name.removeprefix("test_"))[:40].strip("-")) as name:
        yield name
