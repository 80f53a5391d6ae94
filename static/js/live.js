/* Keeps parts of a page current.

   <div data-live="/url" data-every="3" data-socket="/ws/jobs" data-about="job_…">   asks /url for HTML and replaces,
       <section data-part="nodes">…</section>                                       by name, the parts that differ
   </div>
   <p class="lg-fresh" data-fresh></p>                                               says how fresh the page is

   A part that has not changed is left alone, so nothing flickers and nothing loses focus. With data-socket a message
   only says "look again"; the page is always what the server last rendered. While the socket is down, and where there is
   none, it asks every data-every seconds. A hidden tab does not ask. <time data-ago datetime="…"> texts count on by
   themselves, on the server's clock. */

import { copyFrom } from "./clipboard.js";

const QUIET_MS = 250; // two looks are at least so far apart, however fast messages come
const SLOW_FACTOR = 10; // with a working socket a look this much rarer is enough

let clockOffset = 0; // server time minus this machine's

export function span(seconds) {
    const s = Math.max(0, Math.round(seconds));
    if (s < 60) return `${s} s`;
    if (s < 3600) return `${Math.floor(s / 60)} min ${s % 60} s`;
    if (s < 86400) return `${Math.floor(s / 3600)} h ${Math.floor((s % 3600) / 60)} min`;
    return `${Math.floor(s / 86400)} d ${Math.floor((s % 86400) / 3600)} h`;
}

function tickAges() {
    const now = Date.now() + clockOffset;
    for (const node of document.querySelectorAll("time[data-ago]")) {
        const text = span((now - Date.parse(node.dateTime)) / 1000) + (node.dataset.ago || "");
        if (node.textContent !== text) node.textContent = text;
    }
}

/* How many jobs have not ended, beside *Jobs* in the sidebar; null: this page does not tell. */
function tellOpenJobs(count) {
    const badge = document.querySelector("[data-open-jobs]");
    if (!badge || count === null) return;
    if (badge.textContent !== count) badge.textContent = count;
    badge.hidden = count === "" || count === "0";
}

/* What a part says, without what differs from one rendering to the next: spelled-out ages, form tokens. */
function substance(part) {
    const copy = part.cloneNode(true);
    for (const node of copy.querySelectorAll("time[data-ago]")) node.textContent = "";
    for (const node of copy.querySelectorAll("input[name=csrfmiddlewaretoken]")) node.removeAttribute("value");
    for (const node of copy.querySelectorAll("details[id]")) node.removeAttribute("open");
    return copy.outerHTML;
}

/* Where the focus goes on in the next rendering: the element of the same id, else the one in the same place with the same
   text. Nowhere if the focus is not in the part. */
function heir(old, fresh) {
    const had = document.activeElement;
    if (!old.contains(had)) return null;
    if (had.id) return fresh.querySelector(`#${CSS.escape(had.id)}`);
    const reachable = (part) => [...part.querySelectorAll("a[href], button, input, select, summary, [tabindex]")];
    const found = reachable(fresh)[reachable(old).indexOf(had)];
    return found && found.textContent === had.textContent ? found : null;
}

class Live {
    constructor(root) {
        this.root = root;
        this.url = root.dataset.live;
        this.every = Number(root.dataset.every || 3) * 1000;
        this.fresh = document.querySelector("[data-fresh]");
        this.seen = new Map();
        this.lastGood = Date.now();
        this.timer = 0;
        this.busy = false;
        this.again = false;
        this.socketUp = false;
        for (const part of root.querySelectorAll("[data-part]")) this.seen.set(part.dataset.part, substance(part));
        this.tell("ok");
        this.plan(0);
        document.addEventListener("visibilitychange", () => document.hidden || this.plan(0));
        if (root.dataset.socket) this.listen(root.dataset.socket, 500);
    }

    plan(ms) {
        clearTimeout(this.timer);
        this.timer = setTimeout(() => this.look(), ms);
    }

    async look() {
        if (document.hidden) return;
        if (this.busy) {
            this.again = true;
            return;
        }
        this.busy = true;
        this.again = false;
        try {
            const answer = await fetch(this.url, { headers: { "X-Requested-With": "fetch" }, redirect: "manual", signal: AbortSignal.timeout(10000) });
            if (answer.type === "opaqueredirect" || answer.status === 403) return this.tell("signed-out");
            if (!answer.ok) throw new Error(`the server answered ${answer.status}`);
            const date = Date.parse(answer.headers.get("X-Llmgw-Now") || "");
            if (date) clockOffset = date - Date.now();
            tellOpenJobs(answer.headers.get("X-Llmgw-Open-Jobs"));
            this.apply(await answer.text());
            this.lastGood = Date.now();
            this.tell("ok");
        } catch {
            this.tell("lost");
        } finally {
            this.busy = false;
            this.plan(this.again ? QUIET_MS : this.socketUp ? this.every * SLOW_FACTOR : this.every);
        }
    }

    apply(html) {
        const page = new DOMParser().parseFromString(html, "text/html");
        for (const next of page.querySelectorAll("[data-part]")) {
            const name = next.dataset.part;
            const text = substance(next);
            if (this.seen.get(name) === text) continue;
            const old = this.root.querySelector(`[data-part="${CSS.escape(name)}"]`);
            if (!old) continue;
            for (const details of old.querySelectorAll("details[id][open]")) {
                const twin = next.querySelector(`#${CSS.escape(details.id)}`);
                if (twin) twin.open = true;
            }
            const scrolled = [...old.querySelectorAll("pre[id]")].map((pre) => [pre.id, pre.scrollTop]);
            const fresh = document.importNode(next, true);
            const goesOn = heir(old, fresh);
            old.replaceWith(fresh);
            if (goesOn) goesOn.focus({ preventScroll: true });
            for (const [id, top] of scrolled) {
                const pre = fresh.querySelector(`#${CSS.escape(id)}`);
                if (pre) pre.scrollTop = top;
            }
            this.seen.set(name, text);
        }
        tickAges();
    }

    listen(path, pause) {
        const scheme = location.protocol === "https:" ? "wss" : "ws";
        const socket = new WebSocket(`${scheme}://${location.host}${path}`);
        socket.onopen = () => {
            this.socketUp = true;
            pause = 500;
            this.plan(0);
        };
        socket.onmessage = (event) => {
            const about = this.root.dataset.about;
            if (about && !String(event.data).includes(about)) return;
            if (this.busy) this.again = true;
            else this.plan(QUIET_MS);
        };
        socket.onclose = () => {
            this.socketUp = false;
            this.plan(this.every);
            setTimeout(() => this.listen(path, Math.min(pause * 2, 30000)), pause);
        };
    }

    tell(state) {
        if (!this.fresh) return;
        const clock = new Date(this.lastGood).toLocaleTimeString([], { hour12: false });
        const texts = {
            ok: `Live, as of ${clock}`,
            lost: `No answer from the console. What is shown is from ${clock}; trying again.`,
            "signed-out": "You are signed out, or may no longer see this. Load the page again to sign in.",
        };
        this.fresh.dataset.state = state === "ok" ? "ok" : "lost";
        if (this.fresh.textContent !== texts[state]) this.fresh.textContent = texts[state];
    }
}

for (const root of document.querySelectorAll("[data-live]")) new Live(root);
document.querySelector("[autofocus][aria-invalid]")?.focus(); // of a refused form; by itself a browser does so not always
tickAges();
setInterval(tickAges, 1000);

document.addEventListener("click", (event) => {
    const button = event.target.closest("[data-copy]");
    if (button) copyFrom(button, document.getElementById(button.dataset.copy).textContent);
});
