/* Copying. Browsers give the clipboard API to https and localhost only; elsewhere the old command still works. */

export async function copy(text) {
    try {
        await navigator.clipboard.writeText(text);
        return true;
    } catch {
        const area = document.createElement("textarea");
        area.value = text;
        area.style.position = "fixed";
        area.style.opacity = "0";
        document.body.append(area);
        area.select();
        const done = document.execCommand("copy");
        area.remove();
        return done;
    }
}

/** Copy, and let the button say what became of it. */
export async function copyFrom(button, text) {
    const label = button.dataset.label || button.textContent;
    button.dataset.label = label;
    button.textContent = (await copy(text)) ? "Copied" : "Could not copy";
    setTimeout(() => (button.textContent = label), 1500);
}
