"""What the conformance suite calls: its tools, resources, prompts and tasks, served beside our own."""

import asyncio
import base64
import json
from typing import Any

from mcp.shared.exceptions import MCPError
from mcp_types import (
    INVALID_PARAMS,
    MISSING_REQUIRED_CLIENT_CAPABILITY,
    AudioContent,
    BlobResourceContents,
    CallToolResult,
    CompleteRequestParams,
    CompleteResult,
    Completion,
    CreateMessageRequest,
    CreateMessageRequestParams,
    CreateMessageResult,
    ElicitRequest,
    ElicitRequestFormParams,
    ElicitResult,
    EmbeddedResource,
    EmptyResult,
    GetPromptRequestParams,
    GetPromptResult,
    ImageContent,
    InputRequiredResult,
    ListPromptsResult,
    ListResourcesResult,
    ListResourceTemplatesResult,
    ListRootsRequest,
    ListRootsResult,
    PaginatedRequestParams,
    Prompt,
    PromptArgument,
    PromptMessage,
    ReadResourceRequestParams,
    ReadResourceResult,
    Resource,
    ResourceTemplate,
    SamplingMessage,
    SetLevelRequestParams,
    SubscribeRequestParams,
    TextContent,
    TextResourceContents,
    UnsubscribeRequestParams,
)

from deputy.interfaces.mcp.tasks import McpTask, created_dict, is_wanted, require_tasks
from deputy.interfaces.mcp.tools import McpCall, ServedTool, refused, tool_result

PIXEL = base64.b64encode(
    base64.b64decode("iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mP8z8BQDwAEhQGAhKmMIQAAAABJRU5ErkJggg==")
).decode()
SILENCE = base64.b64encode(
    b"RIFF$\x00\x00\x00WAVEfmt \x10\x00\x00\x00\x01\x00\x01\x00@\x1f\x00\x00\x80>\x00\x00\x02\x00\x10\x00"
    b"data\x00\x00\x00\x00"
).decode()
NOTHING = {"type": "object", "properties": {}}


def text(words: str) -> TextContent:
    return TextContent(type="text", text=words)


def image() -> ImageContent:
    return ImageContent(type="image", data=PIXEL, mime_type="image/png")


def embedded(uri: str, mime: str, words: str) -> EmbeddedResource:
    return EmbeddedResource(type="resource", resource=TextResourceContents(uri=uri, mime_type=mime, text=words))


def form(message: str, required: bool = True, **properties: Any) -> ElicitRequest:
    schema = {"type": "object", "properties": properties, "required": list(properties) if required else []}
    return ElicitRequest(params=ElicitRequestFormParams(message=message, requested_schema=schema))


def sampling(words: str, most: int) -> CreateMessageRequest:
    message = SamplingMessage(role="user", content=text(words))
    return CreateMessageRequest(params=CreateMessageRequestParams(messages=[message], max_tokens=most))


NAME = form("What is your name?", name={"type": "string"})
STRING = {"type": "string"}

# --- tools that only answer -------------------------------------------------------------------------------------------

ANSWERS: dict[str, list[Any]] = {
    "test_simple_text": [text("This is a simple text response for testing.")],
    "test_image_content": [image()],
    "test_audio_content": [AudioContent(type="audio", data=SILENCE, mime_type="audio/wav")],
    "test_embedded_resource": [
        embedded("test://embedded-resource", "text/plain", "This is an embedded resource content.")
    ],
    "test_multiple_content_types": [
        text("Multiple content types test:"),
        image(),
        embedded("test://mixed-content-resource", "application/json", '{"test":"data","value":123}'),
    ],
    "json_schema_2020_12_tool": [text("ok")],
    "test_custom_header_tool": [text("ok")],
}
SCHEMAS: dict[str, dict[str, Any]] = {
    "json_schema_2020_12_tool": {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "type": "object",
        "$defs": {
            "address": {"$anchor": "addressDef", "type": "object", "properties": {"street": STRING, "city": STRING}}
        },
        "properties": {
            "name": STRING,
            "address": {"$ref": "#/$defs/address"},
            "contactMethod": {"type": "string", "enum": ["phone", "email"]},
            "phone": STRING,
            "email": STRING,
        },
        "allOf": [{"anyOf": [{"required": ["phone"]}, {"required": ["email"]}]}],
        "if": {"properties": {"contactMethod": {"const": "phone"}}, "required": ["contactMethod"]},
        "then": {"required": ["phone"]},
        "else": {"required": ["email"]},
        "additionalProperties": False,
    },
    "test_custom_header_tool": {
        "type": "object",
        "properties": {"region": {"type": "string", "x-mcp-header": "Region"}, "query": STRING},
    },
    "test_sampling": {"type": "object", "properties": {"prompt": STRING}, "required": ["prompt"]},
    "test_elicitation": {"type": "object", "properties": {"message": STRING}, "required": ["message"]},
    "greet": {"type": "object", "properties": {"name": STRING}, "required": ["name"]},
    "slow_compute": {"type": "object", "properties": {"seconds": {"type": "number"}}},
    "confirm_delete": {"type": "object", "properties": {"filename": STRING}},
}


async def answered(call: McpCall) -> CallToolResult:
    return CallToolResult(content=ANSWERS[call.params.name])


# --- tools that speak with the client while they work -----------------------------------------------------------------


async def failing(call: McpCall) -> CallToolResult:
    return refused("This tool intentionally returns an error for testing")


async def logging(call: McpCall) -> CallToolResult:
    for words in ("Tool execution started", "Tool processing data", "Tool execution completed"):
        await call.context.session.send_log_message("info", words, related_request_id=call.context.request_id)
        await asyncio.sleep(0.05)
    return tool_result("Logged.")


async def progressing(call: McpCall) -> CallToolResult:
    for progress in (0, 50, 100):
        await call.context.session.report_progress(progress, 100)
        await asyncio.sleep(0.05)
    return tool_result("Progressed.")


async def asking_a_model(call: McpCall) -> CallToolResult:
    message = SamplingMessage(role="user", content=text(call.arguments["prompt"]))
    got = await call.context.session.create_message(
        [message], max_tokens=100, related_request_id=call.context.request_id
    )
    return tool_result(f"LLM response: {got.content.text}")


ELICITED: dict[str, Any] = {
    "test_elicitation": {"username": STRING, "email": STRING},
    "test_elicitation_sep1034_defaults": {
        "name": {"type": "string", "default": "John Doe"},
        "age": {"type": "integer", "default": 30},
        "score": {"type": "number", "default": 95.5},
        "status": {"type": "string", "enum": ["active", "inactive", "pending"], "default": "active"},
        "verified": {"type": "boolean", "default": True},
    },
    "test_elicitation_sep1330_enums": {
        "untitledSingle": {"type": "string", "enum": ["option1", "option2", "option3"]},
        "titledSingle": {
            "type": "string",
            "oneOf": [{"const": f"value{n}", "title": f"{w} Option"} for n, w in enumerate(("First", "Second"), 1)],
        },
        "legacyEnum": {
            "type": "string",
            "enum": ["opt1", "opt2", "opt3"],
            "enumNames": ["Option One", "Option Two", "Option Three"],
        },
        "untitledMulti": {"type": "array", "items": {"type": "string", "enum": ["option1", "option2", "option3"]}},
        "titledMulti": {
            "type": "array",
            "items": {
                "anyOf": [{"const": f"value{n}", "title": f"{w} Choice"} for n, w in enumerate(("First", "Second"), 1)]
            },
        },
    },
}


async def eliciting(call: McpCall) -> CallToolResult:
    properties = ELICITED[call.params.name]
    got = await call.context.session.elicit_form(
        call.arguments.get("message", "Please answer."),
        {"type": "object", "properties": properties, "required": []},
        related_request_id=call.context.request_id,
    )
    said = "User response" if call.params.name == "test_elicitation" else "Elicitation completed"
    return tool_result(f"{said}: action={got.action}, content={json.dumps(got.content)}")


async def reconnecting(call: McpCall) -> CallToolResult:
    if call.context.close_sse_stream is not None:
        await call.context.close_sse_stream()
    await asyncio.sleep(0.2)
    return tool_result("Reconnected.")


async def needing_a_capability(call: McpCall) -> CallToolResult:
    capabilities = call.context.session.client_capabilities
    if capabilities is None or capabilities.sampling is None:
        raise MCPError(
            code=MISSING_REQUIRED_CLIENT_CAPABILITY,
            message="sampling is needed",
            data={"requiredCapabilities": {"sampling": {}}},
        )
    return tool_result("ok")


# --- questions in results ---------------------------------------------------------------------------------------------

ASKED: dict[str, dict[str, Any]] = {
    "test_input_required_result_elicitation": {"user_name": NAME},
    "test_input_required_result_sampling": {"capital_question": sampling("What is the capital of France?", 100)},
    "test_input_required_result_list_roots": {"client_roots": ListRootsRequest()},
    "test_input_required_result_request_state": {"confirm": form("Please confirm", ok={"type": "boolean"})},
    "test_input_required_result_tampered_state": {"confirm": form("Please confirm", ok={"type": "boolean"})},
    "test_streaming_elicitation": {"user_name": NAME},
    "test_input_required_result_multiple_inputs": {
        "user_name": NAME,
        "greeting": sampling("Generate a greeting", 50),
        "client_roots": ListRootsRequest(),
    },
}
STATEFUL = (
    "test_input_required_result_request_state",
    "test_input_required_result_tampered_state",
    "test_input_required_result_multiple_inputs",
)


def said(answer: Any) -> str:
    match answer:
        case ElicitResult():
            return ", ".join(map(str, (answer.content or {}).values()))
        case ListRootsResult():
            return ", ".join(str(root.uri) for root in answer.roots)
        case CreateMessageResult():
            return answer.content.text
        case _:
            return str(answer)


async def asking(call: McpCall) -> Any:
    wanted = ASKED[call.params.name]
    answers = call.params.input_responses or {}
    if not wanted.keys() <= answers.keys():
        state = "the state" if call.params.name in STATEFUL else None
        return InputRequiredResult(input_requests=wanted, request_state=state)
    state = "state-ok " if call.params.request_state == "the state" else ""
    return tool_result(f"{state}Hello, {'; '.join(said(answers[key]) for key in wanted)}!")


async def asking_twice(call: McpCall) -> Any:
    answers, state = call.params.input_responses or {}, call.params.request_state
    if state == "two" and "step2" in answers:
        return tool_result(f"You like {said(answers['step2'])}.")
    if state == "one" and "step1" in answers:
        question = form("Step 2: What is your favorite color?", color=STRING)
        return InputRequiredResult(input_requests={"step2": question}, request_state="two")
    question = form("Step 1: What is your name?", name=STRING)
    return InputRequiredResult(input_requests={"step1": question}, request_state="one")


async def asking_what_can_be_answered(call: McpCall) -> Any:
    capabilities = call.context.session.client_capabilities
    requests: dict[str, Any] = {}
    if capabilities is not None and capabilities.sampling is not None:
        requests["question"] = sampling("Hello?", 10)
    if capabilities is not None and capabilities.elicitation is not None:
        requests["name"] = NAME
    if not requests or call.params.input_responses:
        return tool_result("ok")
    return InputRequiredResult(input_requests=requests)


# --- tasks ------------------------------------------------------------------------------------------------------------


class Book:
    """Tasks of fixtures: work in memory, questions, and answers that come one by one."""

    def __init__(self) -> None:
        self._tasks: dict[str, McpTask] = {}
        self._work: dict[str, asyncio.Task[None]] = {}
        self._asked: dict[str, dict[str, Any]] = {}
        self._answers: dict[str, dict[str, Any]] = {}
        self._come: dict[str, asyncio.Event] = {}

    def begin(self, work, asks: dict[str, Any] | None = None) -> dict[str, Any]:
        name = f"task-{len(self._tasks)}"
        now = "2026-07-28T00:00:00Z"
        self._tasks[name] = McpTask(task_id=name, status="working", created_at=now, updated_at=now)
        self._asked[name] = dict(asks or {})
        self._answers[name] = {}
        self._come[name] = asyncio.Event()
        self._work[name] = asyncio.create_task(self._execute(name, work))
        return created_dict(self._tasks[name])

    async def _execute(self, name: str, work) -> None:
        while self._asked[name]:
            self._come[name].clear()
            await self._come[name].wait()
        try:
            self._change(name, status="completed", result=await work(self._answers[name]))
        except asyncio.CancelledError:
            self._change(name, status="cancelled")
        except RuntimeError as error:
            self._change(name, status="failed", error={"code": -32603, "message": str(error)})

    def _change(self, name: str, **fields: Any) -> None:
        from msgspec import structs

        self._tasks[name] = structs.replace(self._tasks[name], **fields)

    async def get(self, task_id: str, context: object) -> McpTask | None:
        from msgspec import structs

        task = self._tasks.get(task_id)
        if task is None or not self._asked[task_id] or task.status != "working":
            return task
        requests = {
            key: one.model_dump(by_alias=True, mode="json", exclude_none=True)
            for key, one in self._asked[task_id].items()
        }
        return structs.replace(task, status="input_required", input_requests=requests)

    async def update(self, task_id: str, context: object, answers: dict[str, Any]) -> bool:
        if task_id not in self._tasks:
            return False
        for key, answer in answers.items():
            if self._asked[task_id].pop(key, None) is not None:
                self._answers[task_id][key] = answer
        self._come[task_id].set()
        return True

    async def cancel(self, task_id: str) -> bool:
        if task_id not in self._tasks:
            return False
        if self._tasks[task_id].status == "working":
            self._asked[task_id].clear()
            self._work[task_id].cancel()
            self._change(task_id, status="cancelled")
        return True


BOOK = Book()


async def greet(call: McpCall) -> CallToolResult:
    return tool_result(f"Hello, {call.arguments.get('name', '')}!")


async def slow_compute(call: McpCall) -> Any:
    seconds = float(call.arguments.get("seconds", 1))

    async def work(_) -> CallToolResult:
        await asyncio.sleep(seconds)
        return tool_result(f"Computed for {seconds:g} s.")

    return BOOK.begin(work) if is_wanted(call.context) else await work({})


async def failing_job(call: McpCall) -> Any:
    require_tasks(call.context)

    async def work(_) -> CallToolResult:
        await asyncio.sleep(1)
        return refused("The job failed.")

    return BOOK.begin(work)


async def protocol_error_job(call: McpCall) -> Any:
    require_tasks(call.context)

    async def work(_) -> CallToolResult:
        raise RuntimeError("the job broke")

    return BOOK.begin(work)


async def confirm_delete(call: McpCall) -> Any:
    require_tasks(call.context)

    async def work(answers) -> CallToolResult:
        return tool_result(f"Answered: {', '.join(map(said, answers.values()))}")

    return BOOK.begin(work, {"confirm": form("Delete it?", confirm={"type": "boolean"})})


async def multi_input(call: McpCall) -> Any:
    require_tasks(call.context)

    async def work(answers) -> CallToolResult:
        return tool_result(f"Answered: {', '.join(map(said, answers.values()))}")

    return BOOK.begin(work, {"one": NAME, "two": form("Sure?", confirm={"type": "boolean"})})


async def asking_before_the_task(call: McpCall) -> Any:
    answers = call.params.input_responses or {}
    if "user_name" not in answers:
        return InputRequiredResult(input_requests={"user_name": NAME}, request_state="asked")

    async def work(_) -> CallToolResult:
        return tool_result(f"Hello, {said(answers['user_name'])}!")

    return BOOK.begin(work)


OTHERS = {
    "test_error_handling": failing,
    "test_tool_with_logging": logging,
    "test_logging_tool": logging,
    "test_tool_with_progress": progressing,
    "test_sampling": asking_a_model,
    "test_reconnection": reconnecting,
    "test_missing_capability": needing_a_capability,
    "test_input_required_result_multi_round": asking_twice,
    "test_input_required_result_capabilities": asking_what_can_be_answered,
    "greet": greet,
    "slow_compute": slow_compute,
    "failing_job": failing_job,
    "protocol_error_job": protocol_error_job,
    "confirm_delete": confirm_delete,
    "multi_input": multi_input,
    "test_tool_with_task": asking_before_the_task,
}


def fixture_tools() -> list[ServedTool]:
    carried = {
        **dict.fromkeys(ANSWERS, answered),
        **dict.fromkeys(ELICITED, eliciting),
        **dict.fromkeys(ASKED, asking),
        **OTHERS,
    }
    return [
        ServedTool(
            name=name,
            title=name,
            description=lambda name=name: f"A fixture of the conformance suite: {name}.",
            schema=SCHEMAS.get(name, NOTHING),
            execute=carry_out,
        )
        for name, carry_out in carried.items()
    ]


# --- resources, prompts and the rest ----------------------------------------------------------------------------------

RESOURCES = [
    Resource(uri=uri, name=uri.removeprefix("test://"), description="A fixture.", mime_type=mime)
    for uri, mime in (
        ("test://static-text", "text/plain"),
        ("test://static-binary", "image/png"),
        ("test://watched-resource", "text/plain"),
    )
]
PROMPTS = [
    Prompt(
        name=name,
        description="A fixture.",
        arguments=[PromptArgument(name=a, description=a, required=True) for a in needed],
    )
    for name, needed in (
        ("test_simple_prompt", ()),
        ("test_prompt_with_arguments", ("arg1", "arg2")),
        ("test_prompt_with_embedded_resource", ("resourceUri",)),
        ("test_prompt_with_image", ()),
        ("test_input_required_result_prompt", ()),
    )
]


def page(uri: str):
    if uri == "test://static-binary":
        return BlobResourceContents(uri=uri, mime_type="image/png", blob=PIXEL)
    if uri.startswith("test://template/") and uri.endswith("/data"):
        number = uri.split("/")[3]
        data = {"id": number, "templateTest": True, "data": f"Data for ID: {number}"}
        return TextResourceContents(uri=uri, mime_type="application/json", text=json.dumps(data))
    if uri in ("test://static-text", "test://watched-resource"):
        words = "This is the content of the static text resource."
        return TextResourceContents(uri=uri, mime_type="text/plain", text=words)
    return None


def prompt_messages(params: GetPromptRequestParams) -> list[Any]:
    given = params.arguments or {}
    match params.name:
        case "test_simple_prompt":
            return [text("This is a simple prompt for testing.")]
        case "test_prompt_with_arguments":
            return [text(f"Prompt with arguments: arg1='{given['arg1']}', arg2='{given['arg2']}'")]
        case "test_prompt_with_embedded_resource":
            about = embedded(given["resourceUri"], "text/plain", "Embedded resource content for testing.")
            return [about, text("Please process the embedded resource above.")]
        case "test_prompt_with_image":
            return [image(), text("Please analyze the image above.")]
        case _:
            raise MCPError(code=INVALID_PARAMS, message=f"Unknown prompt: {params.name}")


def mount(server) -> None:
    """Serve the fixtures that are not tools beside our own resources and prompts."""
    ours = {
        name: server.get_request_handler(name).handler
        for name in ("resources/list", "resources/templates/list", "resources/read", "prompts/list", "prompts/get")
    }

    async def resources(context, params):
        mine = await ours["resources/list"](context, params)
        return ListResourcesResult(resources=[*mine.resources, *RESOURCES])

    async def templates(context, params):
        mine = await ours["resources/templates/list"](context, params)
        one = ResourceTemplate(uri_template="test://template/{id}/data", name="template", description="A fixture.")
        return ListResourceTemplatesResult(resource_templates=[*mine.resource_templates, one])

    async def read(context, params):
        contents = page(params.uri)
        return (
            await ours["resources/read"](context, params)
            if contents is None
            else ReadResourceResult(contents=[contents])
        )

    async def prompts(context, params):
        mine = await ours["prompts/list"](context, params)
        return ListPromptsResult(prompts=[*mine.prompts, *PROMPTS])

    async def prompt(context, params):
        if params.name == "test_input_required_result_prompt":
            if "user_context" not in (params.input_responses or {}):
                question = form("What context should the prompt use?", context=STRING)
                return InputRequiredResult(input_requests={"user_context": question})
            words = [text(f"Context: {said(params.input_responses['user_context'])}")]
        elif params.name.startswith("test_"):
            words = prompt_messages(params)
        else:
            return await ours["prompts/get"](context, params)
        return GetPromptResult(messages=[PromptMessage(role="user", content=one) for one in words])

    async def complete(context, params):
        return CompleteResult(completion=Completion(values=["paris", "park"], total=2, has_more=False))

    async def nothing(context, params):
        return EmptyResult()

    for method, params, handler in (
        ("resources/list", PaginatedRequestParams, resources),
        ("resources/templates/list", PaginatedRequestParams, templates),
        ("resources/read", ReadResourceRequestParams, read),
        ("prompts/list", PaginatedRequestParams, prompts),
        ("prompts/get", GetPromptRequestParams, prompt),
        ("completion/complete", CompleteRequestParams, complete),
        ("logging/setLevel", SetLevelRequestParams, nothing),
        ("resources/subscribe", SubscribeRequestParams, nothing),
        ("resources/unsubscribe", UnsubscribeRequestParams, nothing),
    ):
        server.add_request_handler(method, params, handler)
