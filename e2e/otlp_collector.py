# SPDX-License-Identifier: Apache-2.0
"""A collector of traces: OTLP over gRPC and over HTTP, with the protocol's own library, keeping all it is sent."""

import concurrent.futures
import http.server
import threading

import grpc
from opentelemetry.proto.collector.trace.v1 import trace_service_pb2 as service
from opentelemetry.proto.collector.trace.v1 import trace_service_pb2_grpc as rpc


def value_of(value):
    kind = value.WhichOneof("value")
    return getattr(value, kind) if kind else None


def attributes(pairs):
    return {pair.key: value_of(pair.value) for pair in pairs}


class Span:
    """One span, with what it came in."""

    def __init__(self, span, scope, resource):
        self.raw, self.scope, self.resource = span, scope.name, attributes(resource.attributes)
        self.name, self.kind, self.attributes = span.name, span.kind, attributes(span.attributes)
        self.trace, self.id, self.parent = span.trace_id.hex(), span.span_id.hex(), span.parent_span_id.hex()
        self.start, self.end = span.start_time_unix_nano, span.end_time_unix_nano
        self.events = [(event.name, attributes(event.attributes)) for event in span.events]
        self.status = (span.status.code, span.status.message)

    def __repr__(self):
        return f"{self.name} {self.trace}/{self.id} of {self.parent}: {self.attributes}"


class Collector(rpc.TraceServiceServicer):
    def __init__(self):
        self.calls = []  # (how, metadata, number of spans)
        self.spans = []
        self.fails = None  # a gRPC status that every call gets
        self._server = grpc.server(concurrent.futures.ThreadPoolExecutor(4))
        rpc.add_TraceServiceServicer_to_server(self, self._server)
        self.grpc_port = self._server.add_insecure_port("127.0.0.1:0")
        self._server.start()
        collector = self

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self):
                body = self.rfile.read(int(self.headers["content-length"]))
                if not self.path.endswith("/v1/logs"):  # the reference's, too
                    collector.keep(f"http {self.path}", {name.lower(): value for name, value in self.headers.items()},
                                   service.ExportTraceServiceRequest.FromString(body))
                self.send_response(200)
                self.send_header("content-length", "0")
                self.end_headers()

            def log_message(self, *what):
                pass

        self._http = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.http_port = self._http.server_port
        threading.Thread(target=self._http.serve_forever, daemon=True).start()

    def Export(self, request, context):
        self.keep("grpc", dict(context.invocation_metadata()), request)
        if self.fails:
            context.abort(self.fails, "as the test wants")
        return service.ExportTraceServiceResponse()

    def keep(self, how, metadata, request):
        spans = [Span(span, scope.scope, resource.resource) for resource in request.resource_spans
                 for scope in resource.scope_spans for span in scope.spans]
        self.calls.append((how, metadata, len(spans)))
        self.spans += spans

    def clear(self):
        self.calls.clear()
        self.spans.clear()

    def close(self):
        self._server.stop(None)
        self._http.shutdown()
