/* One streamed chat completion: the request, the key behind it, the event stream that comes back. Draws nothing. */

const KEY_SLOT = "llmgw.chat-key";
const RENEW_S = 60; // a key that ends sooner is replaced first
const KEY_ARRIVES_MS = 8000; // so long a new key may be unknown to the gateway
const KEY_RETRY_MS = 350;

/** A refusal or a break, with the code and message of the error body. */
export class ChatError extends Error {
    constructor(message, { code = "", status = 0, retryAfter = null } = {}) {
        super(message);
        Object.assign(this, { code, status, retryAfter });
    }
}

/** This tab's key of the OpenAI endpoint, made on first use: it lives an hour and only in this tab's session storage. */
export class Key {
    constructor(url, csrf, user) {
        Object.assign(this, { url, csrf, user });
        this.fresh = false; // made by this page and not yet accepted
    }

    async text() {
        let kept = null;
        try {
            kept = JSON.parse(sessionStorage.getItem(KEY_SLOT) || "null");
        } catch {
            // another program's value, or storage is closed to us: make a new key
        }
        if (kept && kept.user === this.user && kept.expiresAt - Date.now() / 1000 > RENEW_S) return kept.key;
        const answer = await fetch(this.url, { method: "POST", headers: { "X-CSRFToken": this.csrf }, redirect: "manual" });
        if (answer.type === "opaqueredirect") throw new ChatError("You are signed out. Load the page again to sign in.", { code: "signed_out" });
        if (!answer.ok) throw await refusal(answer, "The console could not issue a key for this chat.");
        const made = await answer.json();
        sessionStorage.setItem(KEY_SLOT, JSON.stringify({ user: this.user, key: made.key, expiresAt: made.expires_at }));
        this.fresh = true;
        return made.key;
    }

    forget() {
        sessionStorage.removeItem(KEY_SLOT);
    }
}

async function refusal(answer, otherwise) {
    let error = {};
    try {
        error = (await answer.json()).error || {};
    } catch {
        // not JSON: a proxy between, or the page of a server that is starting
    }
    const retryAfter = Number(answer.headers.get("Retry-After")) || null;
    return new ChatError(error.message || `${otherwise} (HTTP ${answer.status})`, {
        code: error.code || `http_${answer.status}`,
        status: answer.status,
        retryAfter,
    });
}

const pause = (ms, signal) =>
    new Promise((done, stop) => {
        const timer = setTimeout(done, ms);
        signal.addEventListener("abort", () => {
            clearTimeout(timer);
            stop(signal.reason);
        });
    });

async function post(body, key, signal) {
    const started = performance.now();
    let renewed = false;
    for (;;) {
        const bearer = await key.text();
        const sent = performance.now(); // waits for a key are not the model's
        let answer;
        try {
            answer = await fetch("/v1/chat/completions", {
                method: "POST",
                headers: { "Content-Type": "application/json", Authorization: `Bearer ${bearer}` },
                body: JSON.stringify(body),
                signal,
            });
        } catch (error) {
            if (error.name === "AbortError") throw error;
            throw new ChatError("The gateway cannot be reached. Is llmgw running, and is this machine connected to it?", { code: "unreachable" });
        }
        if (answer.ok) {
            key.fresh = false;
            return { answer, sent };
        }
        const error = await refusal(answer, "The request was refused.");
        if (error.status !== 401) throw error;
        if (!key.fresh && !renewed) {
            renewed = true; // revoked or expired meanwhile, perhaps by another tab: one new key
            key.forget();
        } else if (performance.now() - started > KEY_ARRIVES_MS) throw error;
        else await pause(KEY_RETRY_MS, signal); // the gateway learns of a new key within a second or two
    }
}

/** The `data:` payloads of an event stream. */
async function* events(body) {
    const reader = body.pipeThrough(new TextDecoderStream()).getReader();
    let rest = "";
    for (;;) {
        const { value, done } = await reader.read();
        rest += value || "";
        const parts = rest.split(/\r?\n\r?\n/);
        rest = done ? "" : parts.pop();
        for (const part of parts) {
            const data = part
                .split(/\r?\n/)
                .filter((line) => line.startsWith("data:"))
                .map((line) => line.slice(5).trimStart())
                .join("\n");
            if (data) yield data;
        }
        if (done) return;
    }
}

/** Ask, and give back figures. `onDelta({content, reasoning})` is called for every piece. Throws ChatError, or AbortError when stopped. */
export async function complete(body, key, signal, onDelta) {
    let first = null;
    let pieces = 0;
    let usage = null;
    let finish = "";
    let ended = false;
    const { answer, sent } = await post({ ...body, stream: true, stream_options: { include_usage: true } }, key, signal);
    try {
        for await (const data of events(answer.body)) {
            if (data === "[DONE]") {
                ended = true;
                break;
            }
            const chunk = JSON.parse(data);
            if (chunk.error) throw new ChatError(chunk.error.message || "The engine broke off.", { code: chunk.error.code || "stream_error" });
            if (chunk.usage) usage = chunk.usage;
            const choice = (chunk.choices || [])[0];
            if (!choice) continue;
            if (choice.finish_reason) finish = choice.finish_reason;
            const content = choice.delta?.content || "";
            const reasoning = choice.delta?.reasoning_content || choice.delta?.reasoning || "";
            if (!content && !reasoning) continue;
            first ??= performance.now();
            pieces += 1;
            onDelta({ content, reasoning });
        }
    } catch (error) {
        if (error instanceof ChatError || error.name === "AbortError") throw error;
        throw new ChatError("The connection broke while the answer was coming.", { code: "connection_lost" });
    }
    if (!ended) throw new ChatError("The answer ended early: the engine or the gateway broke off.", { code: "stream_cut" });
    return { sent, first, last: performance.now(), pieces, usage, finish };
}
