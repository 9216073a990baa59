# SPDX-License-Identifier: Apache-2.0
"""What every end-to-end test may use.

A test asks for what it needs by fixture. What the machine cannot give makes the test skip, or
fail when CI=true, so that a green run in CI means that everything ran.
"""

import os
import pathlib
import shlex
import subprocess

import pytest

ROOT = pathlib.Path(__file__).resolve().parent.parent
SHARED = pathlib.Path(os.environ.get("COMMUTATOR_SHARED", ROOT.parent / "shared"))
CLUSTER = os.environ.get("COMMUTATOR_CLUSTER", str(ROOT / "e2e/cluster/cluster"))


def unavailable(why):
    """Ends the test because the machine lacks something."""
    if os.environ.get("CI") == "true":
        pytest.fail(f"{why} (CI=true: nothing may be skipped)", pytrace=False)
    pytest.skip(why)


def run(*command, check=True, **options):
    """Runs a command to its end and returns it with its output as text."""
    done = subprocess.run([str(word) for word in command], text=True, stdout=subprocess.PIPE,
                          stderr=subprocess.PIPE, **options)
    if check and done.returncode != 0:
        pytest.fail(f"{shlex.join(map(str, command))}: exit {done.returncode}\n{done.stdout}{done.stderr}")
    return done


class Kube:
    """An API server and the clients for it."""

    def __init__(self, kubeconfig, kubectl, helm):
        self.kubeconfig = kubeconfig
        self._kubectl = kubectl
        self._helm = helm

    def kubectl(self, *words, **options):
        return run(self._kubectl, "--kubeconfig", self.kubeconfig, *words, **options)

    def helm(self, *words, **options):
        return run(self._helm, "--kubeconfig", self.kubeconfig, *words, **options)

    def kinds(self, api_version="nvidia.com/v1alpha1"):
        """A function from a kind to its client (get, create, patch, watch ...)."""
        from kubernetes import client, config, dynamic
        configuration = client.Configuration()
        config.load_kube_config(self.kubeconfig, client_configuration=configuration)
        api = dynamic.DynamicClient(client.ApiClient(configuration))
        return lambda kind: api.resources.get(api_version=api_version, kind=kind)


@pytest.fixture(scope="session")
def shared():
    """The folder of captures and reference data beside the repository."""
    if not SHARED.is_dir():
        unavailable(f"no {SHARED}")
    return SHARED


@pytest.fixture(scope="session")
def tools():
    """Paths of the programs that the cluster harness builds, by name (KUBECTL, HELM ...)."""
    if not os.access(CLUSTER, os.X_OK):
        unavailable(f"no {CLUSTER}")
    done = run(CLUSTER, "env", check=False)
    if done.returncode != 0:
        unavailable(f"{CLUSTER} env: {done.stderr.strip()}")
    lines = (line.removeprefix("export ") for line in done.stdout.splitlines() if "=" in line)
    return {name: shlex.split(value)[0] if value else ""
            for name, value in (line.split("=", 1) for line in lines)}


@pytest.fixture(scope="session")
def api(tools):
    """A fresh API server with our CRDs, for the session: no controllers, no nodes."""
    # The command inside tells where the server is and then lives as long as our end of its input.
    with subprocess.Popen([CLUSTER, "api", "--", "sh", "-c", 'echo "$KUBECONFIG"; exec cat'], text=True,
                          stdin=subprocess.PIPE, stdout=subprocess.PIPE) as server:
        try:
            kubeconfig = server.stdout.readline().strip()
            if not kubeconfig:
                unavailable("the API server did not start")
            kube = Kube(kubeconfig, tools["KUBECTL"], tools["HELM"])
            kube.kubectl("apply", "--server-side", "-f", ROOT / "crds")
            kube.kubectl("wait", "--for=condition=Established", "--timeout=30s", "-f", ROOT / "crds")
            yield kube
        finally:
            server.stdin.close()
