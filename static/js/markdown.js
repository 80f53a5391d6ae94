/* Model output to DOM nodes, by textContent only: what a model writes can never become markup, links or scripts.

   Understood: fenced code blocks, headings, lists, quotes, paragraphs; inline `code`, **bold**, *italic*. The rest stays text. */

const FENCE = /^ {0,3}(`{3,}|~{3,})\s*([\w+#.-]*)/;

/** Split a text into blocks {kind, text, lang}. An unclosed fence is a code block up to the end. */
export function blocks(text) {
    const found = [];
    let open = null; // the fence that is open
    let lines = [];
    const flush = () => {
        if (lines.length) for (const block of prose(lines)) found.push(block);
        lines = [];
    };
    for (const line of text.split("\n")) {
        const fence = FENCE.exec(line);
        if (open) {
            if (fence && fence[1][0] === open.mark[0] && fence[1].length >= open.mark.length && !fence[2]) {
                found.push({ kind: "code", text: open.lines.join("\n"), lang: open.lang });
                open = null;
            } else open.lines.push(line);
        } else if (fence) {
            flush();
            open = { mark: fence[1], lang: fence[2], lines: [] };
        } else lines.push(line);
    }
    flush();
    if (open) found.push({ kind: "code", text: open.lines.join("\n"), lang: open.lang });
    return found;
}

function prose(lines) {
    const found = [];
    let last = null;
    const put = (kind, text, more = {}) => {
        if (last && last.kind === kind && (kind === "p" || kind === "quote")) last.text += `\n${text}`;
        else found.push((last = { kind, text, lang: "", ...more }));
    };
    for (const line of lines) {
        let match;
        if (!line.trim()) last = null;
        else if ((match = /^ {0,3}(#{1,6})\s+(.*)$/.exec(line))) put("h", match[2]);
        else if ((match = /^(\s*)([-*+]|\d{1,4}[.)])\s+(.*)$/.exec(line)))
            put("li", match[3], { lang: /\d/.test(match[2]) ? match[2] : "•", depth: Math.min(3, match[1].length >> 1) });
        else if ((match = /^ {0,3}>\s?(.*)$/.exec(line))) put("quote", match[1]);
        else if (last && last.kind === "li") last.text += `\n${line.trim()}`;
        else put("p", line);
    }
    return found;
}

const INLINE = /(`+)(.+?)\1|\*\*(?=\S)(.+?\S|\S)\*\*|(?<![\w*])\*(?=[^\s*])([^*\n]*[^\s*])\*(?![\w*])/g;

function inline(parent, text) {
    let from = 0;
    for (const match of text.matchAll(INLINE)) {
        parent.append(text.slice(from, match.index));
        const node = document.createElement(match[1] ? "code" : match[3] ? "strong" : "em");
        node.textContent = match[1] ? match[2] : match[3] || match[4];
        parent.append(node);
        from = match.index + match[0].length;
    }
    parent.append(text.slice(from));
}

function build(block) {
    if (block.kind === "code") {
        const box = document.createElement("figure");
        box.className = "chat-code";
        const bar = document.createElement("figcaption");
        const name = document.createElement("span");
        name.textContent = block.lang || "text";
        const copy = document.createElement("button");
        copy.type = "button";
        copy.dataset.copyText = "";
        copy.textContent = "Copy";
        bar.append(name, copy);
        const pre = document.createElement("pre");
        pre.tabIndex = 0;
        pre.textContent = block.text;
        box.append(bar, pre);
        return box;
    }
    const tag = { h: "h3", quote: "blockquote" }[block.kind] || "p";
    const node = document.createElement(tag);
    if (block.kind === "li") {
        node.className = `chat-item depth-${block.depth}`;
        const mark = document.createElement("span");
        mark.className = "mark";
        mark.textContent = block.lang;
        const body = document.createElement("span");
        inline(body, block.text);
        node.append(mark, body);
    } else inline(node, block.text);
    return node;
}

/** Bring `parent` to show `text`; blocks that have not changed keep their nodes, so a long answer stays cheap to stream. */
export function render(parent, text) {
    const next = blocks(text);
    const shown = parent.shownBlocks || [];
    next.forEach((block, n) => {
        const old = shown[n];
        if (old && old.kind === block.kind && old.lang === block.lang && old.depth === block.depth) {
            if (old.text === block.text) return;
            if (block.kind === "code") {
                parent.children[n].lastChild.textContent = block.text;
                return;
            }
        }
        const node = build(block);
        if (parent.children[n]) parent.children[n].replaceWith(node);
        else parent.append(node);
    });
    while (parent.children.length > next.length) parent.lastElementChild.remove();
    parent.shownBlocks = next;
}
