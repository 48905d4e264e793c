import asyncio
import gzip
import socket
import threading
import tracemalloc
import zlib

import pytest
from tests.support.every_case import every_case

from deputy.engine.ports import ToolContext
from deputy.tools.urls import why_not_public
from deputy.tools.web import Web
from deputy.tools.web_fetch import web_fetch_tool

INNER = [
    "0.0.0.0", "0.1.2.3", "10.0.0.1", "10.255.255.255", "100.64.0.1", "100.100.100.200", "127.0.0.1", "127.0.0.53",
    "127.255.255.254", "168.63.129.16", "169.254.169.254", "169.254.170.2", "172.16.0.1", "172.31.255.255",
    "192.0.0.192",
    "192.0.2.1", "192.88.99.1", "192.168.0.1", "192.168.255.255", "198.18.0.1", "198.51.100.1", "203.0.113.1",
    "224.0.0.1",
    "239.255.255.250", "240.0.0.1", "255.255.255.255", "192.31.196.1", "192.52.193.1", "192.175.48.1",
    "::", "::1", "::127.0.0.1", "::ffff:127.0.0.1", "::ffff:169.254.169.254", "::ffff:8.8.8.8", "64:ff9b::7f00:1",
    "64:ff9b::8.8.8.8", "64:ff9b:1::1", "100::1", "2001::1", "2001:0:7f00:1::", "2001:10::1", "2001:db8::1",
    "2002:7f00:1::",
    "2002:a9fe:a9fe::1", "3fff::1", "5f00::1", "fc00::1", "fd00:ec2::254", "fd20:ce::254", "fe80::1", "fec0::1",
    "ff02::1",
    "2001:4860::5efe:7f00:1", "2001:4860::200:5efe:10.0.0.1", "fe80::1%lo",
]  # fmt: skip

PUBLIC = [
    "8.8.8.8",
    "1.1.1.1",
    "93.184.216.34",
    "100.63.255.255",
    "100.128.0.1",
    "172.15.0.1",
    "172.32.0.1",
    "2606:4700::1111",
]

# {p} is the port of a listener that must never be reached.
SPELLINGS = [
    # loopback in IPv4
    "http://127.0.0.1:{p}/", "http://127.0.0.1:{p}", "HTTP://127.0.0.1:{p}/", "https://127.0.0.1:{p}/",
    "http://127.1:{p}/",
    "http://127.0.1:{p}/", "http://2130706433:{p}/", "http://0x7f000001:{p}/", "http://0X7F000001:{p}/",
    "http://0x7f.1:{p}/",
    "http://0x7f.0x0.0x0.0x1:{p}/", "http://017700000001:{p}/", "http://0177.0.0.1:{p}/", "http://0177.0.0.01:{p}/",
    "http://00000177.1:{p}/", "http://127.0.0.1.:{p}/", "http://127.0.0.1..:{p}/", "http://127.000.000.001:{p}/",
    "http://127.0.0.256:{p}/", "http://127.65530:{p}/", "http://4294967297:{p}/", "http://0:{p}/",
    "http://0.0.0.0:{p}/",
    "http://00:{p}/", "http://0x0:{p}/", "http://127.127.127.127:{p}/", "http://１２７.0.0.1:{p}/",
    "http://①②⑦.⓪.⓪.①:{p}/",
    "http://127。0。0。1:{p}/", "http://127．0．0．1:{p}/", "http://127｡0｡0｡1:{p}/", "http://%31%32%37.0.0.1:{p}/",
    "http://127%2e0%2e0%2e1:{p}/", "http://0x7f。1:{p}/", "http://1.0x7f:{p}/", "http://127.0.0.0x1:{p}/",
    # loopback in IPv6
    "http://[::1]:{p}/", "http://[0:0:0:0:0:0:0:1]:{p}/", "http://[::0001]:{p}/", "http://[::]:{p}/",
    "http://[::127.0.0.1]:{p}/",
    "http://[::ffff:127.0.0.1]:{p}/", "http://[::ffff:7f00:1]:{p}/", "http://[0:0:0:0:0:ffff:127.0.0.1]:{p}/",
    "http://[::FFFF:0:7f00:1]:{p}/", "http://[64:ff9b::127.0.0.1]:{p}/", "http://[2002:7f00:1::]:{p}/",
    "http://[::1%25lo]:{p}/",
    "http://[::1%lo]:{p}/", "http://[fe80::1%25eth0]:{p}/", "http://[::1.]:{p}/", "http://[::1:{p}/",
    "http://::1:{p}/",
    "http://[127.0.0.1]:{p}/", "http://[v1.127.0.0.1]:{p}/", "http://[2001:4860::5efe:7f00:1]:{p}/",
    # names
    "http://localhost:{p}/", "http://LOCALHOST:{p}/", "http://localhost.:{p}/", "http://foo.localhost:{p}/",
    "http://localhost.localdomain:{p}/", "http://ⓛⓞⓒⓐⓛⓗⓞⓢⓣ:{p}/", "http://ip6-localhost:{p}/", "http://metadata:{p}/",
    "http://metadata.google.internal/computeMetadata/v1/", "http://router.lan/", "http://printer.local/",
    "http://nas.home.arpa/",
    "http://kubernetes/", "http://localhost%00.example.com:{p}/", "http://loc\u00adalhost:{p}/",
    # metadata and private
    "http://169.254.169.254/latest/meta-data/", "http://2852039166/", "http://0xa9fea9fe/", "http://169.254.43518/",
    "http://⑯⑨。②⑤④。⑯⑨。②⑤④/", "http://[::ffff:169.254.169.254]/", "http://[fd00:ec2::254]/", "http://100.100.100.200/",
    "http://168.63.129.16/", "http://192.0.0.192/", "http://10.0.0.1/", "http://172.16.0.1/", "http://192.168.1.1/",
    "http://100.64.0.1/", "http://[fc00::1]/", "http://[fe80::1]/", "http://224.0.0.1/", "http://255.255.255.255/",
    "http://198.18.0.1/", "http://192.168.1.1.:8080/", "http://3232235777/",
    # user names, separators and other tricks
    "http://example.com@127.0.0.1:{p}/", "http://example.com:80@127.0.0.1:{p}/", "http://user:pass@example.com/",
    "http://@127.0.0.1:{p}/", "http://127.0.0.1:{p}#@example.com/", "http://127.0.0.1:{p}?@example.com/",
    "http://127.0.0.1:{p}\\@example.com/", "http:\\\\127.0.0.1:{p}/", "http:/\\127.0.0.1:{p}/",
    "http://example.com\\@127.0.0.1:{p}/",
    "http:127.0.0.1:{p}/", "http:///127.0.0.1:{p}/", "//127.0.0.1:{p}/", "127.0.0.1:{p}/", "http://127.0.0.1:{p}\t/",
    "http://127.0.0.1\n:{p}/", "ht\ntp://127.0.0.1:{p}/", "http://127.0.0.1 :{p}/",
    "http://127.0.0.1:{p}/ HTTP/1.1\r\nHost: x",
    "\u2028http://127.0.0.1:{p}/", "http://127.0.0.1\u200b:{p}/",
    # schemes and ports
    "file:///etc/passwd", "ftp://127.0.0.1:{p}/", "gopher://127.0.0.1:{p}/_x", "dict://127.0.0.1:{p}/",
    "ws://127.0.0.1:{p}/",
    "data:text/html,hi", "javascript:alert(1)", "jar:http://127.0.0.1:{p}!/", "unix:///var/run/docker.sock",
    "about:blank",
    "http://93.184.216.34:22/", "http://93.184.216.34:25/", "http://93.184.216.34:0/", "http://93.184.216.34:6667/",
    "http://93.184.216.34:99999/", "http://93.184.216.34:-1/", "http://93.184.216.34:8o/", "http://", "http://:{p}/",
    "http://./",
    "http://a..b/", "http://" + "a" * 300 + ".com/", "http://example.com/" + "a" * 5000,
]  # fmt: skip


@pytest.fixture(scope="module")
def listener():
    """A server at every local address that counts who comes."""
    came = []
    with socket.create_server(("::", 0), family=socket.AF_INET6, dualstack_ipv6=True) as server:

        def listen():
            while True:
                try:
                    connection, address = server.accept()
                except OSError:
                    return
                came.append(address)
                connection.close()

        thread = threading.Thread(target=listen, daemon=True)
        thread.start()
        yield server.getsockname()[1], came
        server.shutdown(socket.SHUT_RDWR)
        thread.join()


def test_there_are_enough_spellings():
    assert len(SPELLINGS) >= 120
    assert len(set(SPELLINGS)) == len(SPELLINGS)


def test_the_listener_would_notice(listener):
    port, came = listener
    with socket.create_connection(("127.0.0.1", port)) as connection:
        assert connection.recv(1) == b""
    assert came.pop()


@pytest.mark.rule("web")
@every_case("address", INNER)
def test_an_address_that_is_not_public_has_a_reason(address):
    assert why_not_public(address)


@every_case("address", PUBLIC)
def test_a_public_address_has_none(address):
    assert why_not_public(address) is None


@pytest.mark.rule("web")
@every_case("spelling", SPELLINGS)
def test_no_spelling_reaches_an_inner_address(listener, call, spelling):
    port, came = listener
    answer = call(web_fetch_tool(), url=spelling.format(p=port))
    assert answer.is_error
    assert came == []


@pytest.mark.rule("web")
def test_no_redirect_reaches_an_inner_address(listener, serve, local_web):
    port, came = listener
    places = [spelling.format(p=port) for spelling in SPELLINGS]
    places = [place for place in places if place.isprintable() and place.isascii()] + [
        f"//127.0.0.1:{port}/",
        f"//0:{port}",
    ]

    async def redirect(request, writer):
        place = places[int(request.split(b" ")[1][1:])]
        writer.write(f"HTTP/1.1 302 Found\r\nLocation: {place}\r\nContent-Length: 0\r\n\r\n".encode())

    async def follow_them_all():
        async with serve(redirect) as address:
            tool = web_fetch_tool(local_web())
            return [await tool.run({"url": f"{address}/{n}"}, ToolContext()) for n in range(len(places))]

    outputs = asyncio.run(follow_them_all())
    reached = [place for place, output in zip(places, outputs, strict=True) if not output.is_error]
    # A URL without a scheme is relative, so it stays at the server that redirects for ever.
    assert reached == []
    assert came == []
    assert len(places) >= 90


@pytest.mark.rule("web")
def test_no_name_that_resolves_to_an_inner_address_is_fetched(listener, serve, local_web):
    port, came = listener

    async def answer(_, writer):
        writer.write(b"HTTP/1.1 302 Found\r\nLocation: /again\r\nContent-Length: 0\r\n\r\n")

    async def try_them_all():
        refused = []
        async with serve(answer) as server:
            at = server.rpartition(":")[2]
            for inner in INNER:
                for answers in ([[inner]], [["127.77.77.77", inner]], [["127.77.77.77"], [inner]]):
                    replies = iter(answers)

                    async def rebind(_, replies=replies):
                        return next(replies)

                    tool = web_fetch_tool(local_web(rebind))
                    ports = (port,) if len(answers) == 1 else (at,)
                    for chosen in ports:
                        output = await tool.run({"url": f"http://rebind.example.com:{chosen}/"}, ToolContext())
                        refused.append(output.is_error and "is not on the public internet" in output.text)
        return refused

    refused = asyncio.run(try_them_all())
    assert len(refused) == 3 * len(INNER)
    assert all(refused)
    assert came == []


def test_a_host_is_resolved_to_its_addresses():
    assert asyncio.run(Web()._resolve("93.184.216.34")) == ["93.184.216.34"]


@pytest.mark.rule("web")
def test_the_last_check_is_on_the_address_that_is_connected_to():
    with pytest.raises(OSError, match=r"127\.0\.0\.1 is not on the public internet"):
        Web()._open_socket((socket.AF_INET, socket.SOCK_STREAM, 0, "", ("127.0.0.1", 80)))


@pytest.mark.rule("web")
def test_the_address_that_was_checked_is_the_one_connected_to(serve, local_web):
    asked = []

    async def resolve(host):
        asked.append(host)
        return ["127.77.77.77"] if len(asked) == 1 else ["127.0.0.1"]

    async def answer(request, writer):
        assert b"Host: pinned.example.com" in request
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: 6\r\n\r\npinned")

    async def fetch():
        async with serve(answer) as server:
            port = server.rpartition(":")[2]
            return await web_fetch_tool(local_web(resolve)).run(
                {"url": f"http://pinned.example.com.:{port}/"}, ToolContext()
            )

    assert asyncio.run(fetch()).text.endswith("\n\npinned")
    assert asked == ["pinned.example.com"]


def fetched(serve, local_web, answer, *, path="/", seconds=30, output_bytes=50_000, **arguments):
    """What WebFetch makes of a server that answers like this."""

    async def fetch():
        async with serve(answer) as server:
            tool = web_fetch_tool(local_web(), seconds=seconds)
            return await tool.run({"url": f"{server}{path}", **arguments}, ToolContext(output_bytes=output_bytes))

    return asyncio.run(fetch())


def responding(body, content_type="text/plain", extra=""):
    async def answer(_, writer):
        head = f"HTTP/1.1 200 OK\r\nContent-Type: {content_type}\r\nContent-Length: {len(body)}\r\n{extra}\r\n"
        writer.write(head.encode() + body)

    return answer


PAGE = """<!doctype html><html><head><title>The title</title><style>x{}</style></head><body><nav>menu</nav>
<h1>Heading</h1><p>Some <b>bold</b> text, <a href="/x">a link</a>.</p><script>evil()</script>
<table><tr><th>a</th></tr><tr><td>1</td></tr></table><img src="data:image/png;base64,AAAA" alt="pic"></body></html>"""


@pytest.mark.rule("web")
def test_a_page_becomes_readable_markdown(serve, local_web):
    text = fetched(serve, local_web, responding(PAGE.encode(), "text/html; charset=utf-8")).text
    assert "answered 200 (text/html)\n\n# The title\n" in text
    assert "# Heading" in text
    assert "Some **bold** text, [a link](/x)." in text
    assert "| a |" in text
    assert "evil" not in text
    assert "base64" not in text


def test_text_and_json_come_as_they_are_and_the_rest_is_described(serve, local_web):
    assert fetched(serve, local_web, responding(b'{"a": 1}', "application/json")).text.endswith('\n\n{"a": 1}')
    assert fetched(serve, local_web, responding(b"<a>", "application/atom+xml")).text.endswith("\n\n<a>")
    assert fetched(serve, local_web, responding("é".encode("latin1"), "text/plain; charset=ISO-8859-1")).text.endswith(
        "é"
    )
    assert fetched(serve, local_web, responding(b"\xe9", "text/plain; charset=unicode_escape")).text.endswith("�")
    assert fetched(serve, local_web, responding(b"<html><body>hi", "")).text.endswith("\n\nhi")
    described = fetched(serve, local_web, responding(b"%PDF-1.7\0", "application/pdf"))
    assert described.text.endswith("(application/pdf): 9 bytes that are not text and are not shown.")


def test_an_error_status_is_an_error_with_its_text(serve, local_web):
    async def answer(_, writer):
        writer.write(b"HTTP/1.1 404 Not Found\r\nContent-Type: text/plain\r\nContent-Length: 4\r\n\r\nnope")

    output = fetched(serve, local_web, answer)
    assert output.is_error
    assert output.text.endswith("answered 404 (text/plain)\n\nnope")


def test_a_long_page_is_cut_and_read_on_by_offset(serve, local_web):
    body = "".join(f"line {n}\n" for n in range(1000)).encode()
    first = fetched(serve, local_web, responding(body), output_bytes=1000).text
    offset = int(first.rpartition("offset=")[2].rstrip("]"))
    second = fetched(serve, local_web, responding(body), output_bytes=100_000, offset=offset).text
    shown = first.partition("\n\n")[2].rpartition("\n[cut here")[0] + second.partition("\n\n")[2]
    assert shown == body.decode()


@pytest.mark.rule("web")
def test_few_redirects_are_followed_and_none_from_https_to_http(serve, local_web):
    async def redirect(request, writer):
        left = int(request.split(b" ")[1][1:])
        if not left:
            writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: 4\r\n\r\nhere")
        else:
            writer.write(f"HTTP/1.1 307 Temporary\r\nLocation: /{left - 1}\r\nContent-Length: 0\r\n\r\n".encode())

    assert fetched(serve, local_web, redirect, path="/5").text.endswith("/0 answered 200 (text/plain)\n\nhere")
    assert "redirected more than 5 times" in fetched(serve, local_web, redirect, path="/6").text
    web = local_web()
    from yarl import URL

    with pytest.raises(Exception, match="from https to http"):
        web._next(URL("https://example.com/"), "http://example.com/")


def zeros(megabytes, window_bits):
    packer = zlib.compressobj(9, zlib.DEFLATED, window_bits)
    block = bytes(1024 * 1024)
    return b"".join(packer.compress(block) for _ in range(megabytes)) + packer.flush()


async def endless_body(_, writer):
    writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\n\r\n")
    while True:
        writer.write(b"x" * 65_536)
        await writer.drain()


async def endless_chunks(_, writer):
    writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nTransfer-Encoding: chunked\r\n\r\n")
    while True:
        writer.write(b"10000\r\n" + b"x" * 65_536 + b"\r\n")
        await writer.drain()


async def endless_headers(_, writer):
    writer.write(b"HTTP/1.1 200 OK\r\n")
    while True:
        writer.write(b"X-Header: x\r\n" * 5000)
        await writer.drain()


async def endless_header(_, writer):
    writer.write(b"HTTP/1.1 200 OK\r\nX-Header: ")
    while True:
        writer.write(b"x" * 65_536)
        await writer.drain()


async def endless_interim_answers(_, writer):
    while True:
        writer.write(b"HTTP/1.1 100 Continue\r\n\r\n" * 1000)
        await writer.drain()


BOMBS = {
    "gzip": lambda: responding(zeros(200, 31), extra="Content-Encoding: gzip\r\n"),
    "x-gzip": lambda: responding(zeros(20, 31), extra="Content-Encoding: x-gzip\r\n"),
    "deflate": lambda: responding(zeros(50, 15), extra="Content-Encoding: deflate\r\n"),
    "raw deflate": lambda: responding(zeros(50, -15), extra="Content-Encoding: deflate\r\n"),
    "gzip as html": lambda: responding(zeros(20, 31), "text/html", extra="Content-Encoding: gzip\r\n"),
    "gzip in gzip": lambda: responding(gzip.compress(zeros(50, 31)), extra="Content-Encoding: gzip, gzip\r\n"),
    "brotli": lambda: responding(b"\x8b\x80" * 400, extra="Content-Encoding: br\r\n"),
    "zstd": lambda: responding(b"\x28\xb5\x2f\xfd" * 100, extra="Content-Encoding: zstd\r\n"),
    "damaged gzip": lambda: responding(b"\x1f\x8b\x08 nonsense", extra="Content-Encoding: gzip\r\n"),
    "endless body": lambda: endless_body,
    "endless chunks": lambda: endless_chunks,
    "endless headers": lambda: endless_headers,
    "endless header": lambda: endless_header,
}


@pytest.mark.rule("web")
@pytest.mark.parametrize("bomb", BOMBS)
def test_no_bomb_costs_more_than_its_cap(serve, local_web, bomb):
    tracemalloc.start()
    output = fetched(serve, local_web, BOMBS[bomb](), seconds=20)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert len(output.text) < 60_000
    assert output.is_error or "only the first 4,194,304 bytes were fetched" in output.text
    assert peak < 64 * 1024 * 1024


@pytest.mark.rule("web")
@pytest.mark.parametrize("kind", ["drip", "silence", "interim answers"])
def test_a_slow_answer_ends_at_the_limit(serve, local_web, kind):
    async def drip(_, writer):
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: 1000000\r\n\r\n")
        while True:
            writer.write(b".")
            await writer.drain()
            await asyncio.sleep(0.05)

    async def silence(_, writer):
        await asyncio.Event().wait()

    answer = {"drip": drip, "silence": silence, "interim answers": endless_interim_answers}[kind]
    output = fetched(serve, local_web, answer, seconds=0.5)
    assert output.is_error
    assert "did not answer within 0.5 s" in output.text


@pytest.mark.parametrize(
    "raw",
    [b"", b"nonsense\r\n\r\n", b"HTTP/1.1 999999 X\r\n\r\n", b"HTTP/1.1 200 OK\r\nContent-Length: x\r\n\r\n",
     b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nshort",
     b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
     b"HTTP/1.1 302 Found\r\nLocation: http://[\r\n\r\n",
     b"HTTP/1.1 302 Found\r\nLocation: \r\nContent-Length: 0\r\n\r\n",
     b"\0" * 100_000],
)  # fmt: skip
def test_a_broken_answer_is_an_error_not_a_crash(serve, local_web, raw):
    async def answer(_, writer):
        writer.write(raw)

    output = fetched(serve, local_web, answer)
    assert (output.is_error, output.is_our_own) == (True, True)


def test_what_a_server_says_in_an_error_is_data(serve, local_web):
    async def redirect(_, writer):
        writer.write(b"HTTP/1.1 302 Found\r\nLocation: ftp://example.com/obey-me\r\nContent-Length: 0\r\n\r\n")

    async def header(_, writer):
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Encoding: obey-me\r\nContent-Length: 0\r\n\r\n")

    for answer in (redirect, header):
        output = fetched(serve, local_web, answer)
        assert (output.is_error, output.is_our_own) == (True, True)
        assert "obey-me" in output.data
        assert "obey-me" not in output.text


HOSTILE_PAGES = {
    "deep": "<div>" * 200_000, "deep tables": "<table><tr><td>" * 50_000, "open tags": "<a href=x>" * 100_000,
    "angle brackets": "<" * 1_000_000, "comments": "<!--" * 200_000, "nul": "\0" * 100_000,
    "attributes": "<p " + "a " * 400_000,
    "backticks": "<pre>" + "`" * 500_000, "empty": "",
}  # fmt: skip


@pytest.mark.parametrize("page", HOSTILE_PAGES)
def test_a_hostile_page_is_converted_or_refused_elsewhere(serve, local_web, children, page):
    output = fetched(serve, local_web, responding(HOSTILE_PAGES[page].encode(), "text/html"))
    assert len(output.text) < 60_000
    assert not children()


def test_a_cancelled_fetch_leaves_no_connection_and_no_process(serve, local_web, children, until):
    closed = []

    async def hang(_, writer):
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: 100\r\n\r\nstart")
        await writer.drain()
        started.set()
        try:
            await writer.wait_closed()
        finally:
            closed.append(True)

    async def cancel(answer, ready):
        async with serve(answer) as server:
            call = asyncio.ensure_future(web_fetch_tool(local_web()).run({"url": server}, ToolContext()))
            await ready()
            call.cancel()
            with pytest.raises(asyncio.CancelledError):
                await call
        assert len(asyncio.all_tasks()) == 1

    started = asyncio.Event()
    asyncio.run(cancel(hang, started.wait))
    assert closed
    heavy = responding(("<table><tr>" + "<td>x" * 300_000).encode(), "text/html")
    asyncio.run(cancel(heavy, lambda: until(children)))
    assert not children()


def test_no_proxy_and_no_cookie_and_no_encoding_is_asked_for(serve, local_web, monkeypatch):
    for name in ("http_proxy", "HTTP_PROXY", "all_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:9/")
    requests = []

    async def answer(request, writer):
        requests.append(request.lower())
        again = b"Location: /b\r\nSet-Cookie: a=b\r\n" if len(requests) == 1 else b""
        status = b"302 Found" if again else b"200 OK"
        writer.write(b"HTTP/1.1 " + status + b"\r\nContent-Type: text/plain\r\nContent-Length: 0\r\n" + again + b"\r\n")

    assert not fetched(serve, local_web, answer).is_error
    assert len(requests) == 2
    assert all(b"accept-encoding: identity\r\n" in request for request in requests)
    assert not any(b"cookie" in request or b"referer" in request for request in requests)
