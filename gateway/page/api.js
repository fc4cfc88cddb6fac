// Calls the gateway that served this page.

export const key = {
  get: () => sessionStorage.getItem("key") ?? "",
  set: (text) => (text ? sessionStorage.setItem("key", text) : sessionStorage.removeItem("key")),
};

async function call(path, body, signal) {
  const headers = key.get() ? { Authorization: `Bearer ${key.get()}` } : {};
  const options = body === undefined ? { headers, signal } : { headers, signal, method: "POST", body: JSON.stringify(body) };
  const reply = await fetch(path, options);
  if (reply.ok) return reply;
  const error = (await reply.json().catch(() => ({}))).error;
  const retry = reply.headers.get("Retry-After");
  throw new Error((error?.message ?? `status ${reply.status}`) + (retry ? ` (retry in ${retry} s)` : ""));
}

export const ask = async (path, body) => (await call(path, body)).json();

// Yields the events of a stream as parsed JSON, without the last "[DONE]". Throws an error event.
export async function* stream(path, body, signal) {
  const reader = (await call(path, body, signal)).body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  for (;;) {
    const { value, done } = await reader.read();
    if (done) return;
    const lines = (rest + value).split("\n");
    rest = lines.pop();
    for (const line of lines) {
      if (!line.startsWith("data: ")) continue;
      if (line === "data: [DONE]") return;
      const event = JSON.parse(line.slice(6));
      if (event.error) throw new Error(event.error.message);
      yield event;
    }
  }
}
