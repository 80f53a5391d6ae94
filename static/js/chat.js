/* The chat page: a conversation in memory, one model at a time, answers drawn as they come. */

import { copyFrom } from "./clipboard.js";
import { ChatError, complete, Key } from "./stream.js";
import { render } from "./markdown.js";

const MODELS_EVERY_MS = 4000;
const page = document.getElementById("chat");
const $ = (name) => page.querySelector(`[data-${name}]`);
const log = $("log");
const input = $("input");
const picker = $("model");
const send = $("send");
const why = $("why");
const key = new Key(page.dataset.keyUrl, page.dataset.csrf, page.dataset.user);

const turns = []; // {role, content}: what is sent again with every question
let running = null; // AbortController of the answer that is coming
let models = JSON.parse(document.getElementById("chat-models").textContent);

// --- models -----------------------------------------------------------------------------------------------------

function chosen() {
    return models.find((model) => model.name === picker.value);
}

function drawModels() {
    const before = picker.value || sessionStorage.getItem("llmgw.chat-model") || "";
    picker.replaceChildren(
        ...models.map((model) => {
            const label = model.ready ? model.name : `${model.name} (${model.state})`;
            const option = new Option(label, model.name);
            option.disabled = !model.ready;
            option.title = model.why;
            return option;
        }),
    );
    if (!models.length) picker.append(new Option("No models", ""));
    const pick = models.find((model) => model.name === before) || models.find((model) => model.ready) || models[0];
    if (pick) picker.value = pick.name;
    drawReadiness();
}

function drawReadiness() {
    const model = chosen();
    $("none").hidden = models.length > 0;
    $("invite").hidden = models.length === 0;
    picker.disabled = models.length === 0;
    const reason = !model ? "" : model.ready ? "" : `${model.name} cannot answer now: ${model.why || model.state}`;
    why.textContent = reason;
    why.hidden = !reason;
    const facts = model && model.ready ? model.facts : "";
    $("facts").textContent = facts;
    drawSend();
}

function drawSend() {
    const model = chosen();
    send.hidden = running !== null;
    $("stop").hidden = running === null;
    send.disabled = !(model && model.ready && input.value.trim());
}

async function refreshModels() {
    if (!document.hidden) {
        try {
            const answer = await fetch(page.dataset.modelsUrl, { redirect: "manual" });
            if (answer.ok) {
                const next = (await answer.json()).models;
                if (JSON.stringify(next) !== JSON.stringify(models)) {
                    models = next;
                    if (document.activeElement === picker) drawReadiness(); // an open list would close
                    else drawModels();
                }
            }
        } catch {
            // the console does not answer: the chat itself may still do
        }
    }
    setTimeout(refreshModels, MODELS_EVERY_MS);
}

// --- the conversation ----------------------------------------------------------------------------------------------

function element(tag, className, text = "") {
    const node = document.createElement(tag);
    node.className = className;
    node.textContent = text;
    return node;
}

function nearEnd() {
    return log.scrollHeight - log.scrollTop - log.clientHeight < 80;
}

function addTurn(role, name) {
    const turn = element("article", `chat-turn ${role}`);
    const who = element("header", "who", name);
    const body = element("div", "body");
    const foot = element("footer", "foot");
    turn.append(who, body, foot);
    log.append(turn);
    $("welcome").hidden = true;
    log.scrollTop = log.scrollHeight;
    return { turn, body, foot };
}

function figures(result) {
    const parts = [];
    if (result.first !== null) parts.push(`first token after ${seconds((result.first - result.sent) / 1000)}`);
    const spent = (result.last - (result.first ?? result.last)) / 1000;
    const tokens = result.usage?.completion_tokens;
    if (tokens > 1 && spent > 0) parts.push(`${((tokens - 1) / spent).toFixed(1)} tokens/s`);
    if (tokens !== undefined) parts.push(`${tokens} tokens`);
    if (result.usage?.prompt_tokens !== undefined) parts.push(`prompt ${result.usage.prompt_tokens} tokens`);
    if (result.finish === "length") parts.push("stopped at the token limit");
    return parts.join(" · ");
}

function seconds(value) {
    return value < 1 ? `${Math.round(value * 1000)} ms` : `${value.toFixed(2)} s`;
}

function copyButton(text) {
    const button = element("button", "lg-button plain", "Copy");
    button.type = "button";
    button.dataset.copyValue = text;
    return button;
}

function showError(shown, error) {
    const box = element("div", "lg-note bad chat-error");
    box.setAttribute("role", "alert");
    box.append(element("strong", "", error.message));
    const code = [error.code, error.status ? `HTTP ${error.status}` : "", error.retryAfter ? `try again in ${error.retryAfter} s` : ""];
    box.append(element("div", "mono dim", code.filter(Boolean).join(" · ")));
    const again = element("button", "lg-button", "Try again");
    again.type = "button";
    again.onclick = () => {
        if (running) return;
        shown.turn.remove();
        answer();
    };
    box.append(again);
    shown.turn.append(box);
}

function request() {
    const system = $("system").value.trim();
    const body = { model: picker.value, messages: [...(system ? [{ role: "system", content: system }] : []), ...turns] };
    const temperature = $("temperature").value;
    const most = $("most").value;
    if (temperature !== "") body.temperature = Number(temperature);
    if (most !== "") body.max_tokens = Number(most);
    return body;
}

async function answer() {
    const shown = addTurn("assistant", picker.value);
    shown.turn.setAttribute("aria-busy", "true");
    const waiting = element("span", "chat-waiting", "Waiting for the first token");
    shown.body.append(waiting);
    const text = element("div", "chat-text");
    let content = "";
    let reasoning = "";
    let thoughts = null;
    let frame = 0;
    let failed = false; // a broken answer is shown, but is no part of the conversation
    const draw = () => {
        frame = 0;
        const follow = nearEnd();
        if (reasoning && !thoughts) {
            thoughts = document.createElement("details");
            thoughts.className = "chat-thoughts";
            thoughts.append(element("summary", "", "Reasoning"), element("div", "chat-plain"));
            shown.body.prepend(thoughts);
        }
        if (thoughts) thoughts.lastChild.textContent = reasoning;
        render(text, content);
        if (follow) log.scrollTop = log.scrollHeight;
    };
    const began = performance.now();
    running = new AbortController();
    drawSend();
    try {
        const result = await complete(request(), key, running.signal, (delta) => {
            if (waiting.isConnected) waiting.replaceWith(text);
            content += delta.content;
            reasoning += delta.reasoning;
            frame ||= requestAnimationFrame(draw);
        });
        if (!content && !reasoning) waiting.textContent = "The model ended without a word.";
        shown.foot.append(element("span", "num", figures(result)));
    } catch (error) {
        waiting.remove();
        failed = error.name !== "AbortError";
        if (!failed) shown.foot.append(element("span", "num", `Stopped after ${seconds((performance.now() - began) / 1000)}`));
        else if (error instanceof ChatError) showError(shown, error);
        else {
            showError(shown, new ChatError(`This page failed: ${error.message}`, { code: "page_error" }));
            console.error(error);
        }
    } finally {
        cancelAnimationFrame(frame);
        draw();
        running = null;
        shown.turn.removeAttribute("aria-busy");
        drawSend();
    }
    if (content && !failed) {
        turns.push({ role: "assistant", content });
        shown.foot.append(copyButton(content));
    }
    if (nearEnd()) log.scrollTop = log.scrollHeight;
}

function ask() {
    const text = input.value.trim();
    if (!text || running || !chosen()?.ready) return;
    input.value = "";
    fit();
    for (const again of log.querySelectorAll(".chat-error button")) again.remove(); // they are about the question before
    const { body } = addTurn("user", "You");
    body.append(element("div", "chat-plain", text));
    if (turns.at(-1)?.role === "user") turns.pop(); // the question before was never answered
    turns.push({ role: "user", content: text });
    answer();
}

function fit() {
    input.style.height = "auto";
    input.style.height = `${Math.min(input.scrollHeight + 2, 240)}px`;
    drawSend();
}

// --- wiring ---------------------------------------------------------------------------------------------------------

input.addEventListener("input", fit);
input.addEventListener("keydown", (event) => {
    if (event.key !== "Enter" || event.shiftKey || event.isComposing) return;
    event.preventDefault();
    ask();
});
$("form").addEventListener("submit", (event) => {
    event.preventDefault();
    ask();
});
$("stop").addEventListener("click", () => running?.abort());
$("new").addEventListener("click", () => {
    running?.abort();
    turns.length = 0;
    for (const turn of log.querySelectorAll(".chat-turn")) turn.remove();
    $("welcome").hidden = false;
    input.focus();
});
picker.addEventListener("change", () => {
    sessionStorage.setItem("llmgw.chat-model", picker.value);
    drawReadiness();
});
log.addEventListener("click", (event) => {
    const button = event.target.closest("[data-copy-value], [data-copy-text]");
    if (button) copyFrom(button, button.dataset.copyValue ?? button.closest("figure").querySelector("pre").textContent);
});

drawModels();
fit();
input.focus();
setTimeout(refreshModels, MODELS_EVERY_MS);
