/* Opens a <dialog> from a button, and fills it with what the button carries.

   <button data-dialog="remove" data-action="/where/the/form/goes" data-name="alpha" data-cards='[["uuid", "label"]]'>
   <dialog id="remove"><form method="post">
       <span data-slot="name"></span>                    gets the text of data-name
       <select data-options="cards">…</select>           gets these beside the options it has
       <label data-needs="cards">…</label>               is shown only where there are some
   </form></dialog>

   A button with data-open alone opens the dialog as it is. Closing is the dialog's own: Escape, or formmethod="dialog".
   One that the page came with open, for what it asked was refused, is opened again as a modal one. */

function fill(dialog, data) {
    const form = dialog.querySelector("form");
    form.reset();
    form.action = data.action;
    for (const slot of dialog.querySelectorAll("[data-slot]")) slot.textContent = data[slot.dataset.slot] || "";
    for (const select of dialog.querySelectorAll("select[data-options]")) {
        for (const old of select.querySelectorAll("option[data-own]")) old.remove();
        for (const [value, label] of JSON.parse(data[select.dataset.options] || "[]")) {
            const option = new Option(label, value);
            option.dataset.own = "";
            select.add(option);
        }
    }
    for (const part of dialog.querySelectorAll("[data-needs]")) part.hidden = JSON.parse(data[part.dataset.needs] || "[]").length === 0;
}

document.addEventListener("click", (event) => {
    const button = event.target.closest("[data-dialog], [data-open]");
    if (!button) return;
    const dialog = document.getElementById(button.dataset.dialog || button.dataset.open);
    if (button.dataset.dialog) fill(dialog, button.dataset);
    dialog.showModal();
});

/* What was typed and refused is of one opening only: the next may be about another thing. */
function forget(dialog) {
    for (const old of dialog.querySelectorAll(".lg-note.bad, .lg-error")) old.remove();
    for (const field of dialog.querySelectorAll("input.lg-field")) field.defaultValue = "";
    for (const field of dialog.querySelectorAll("[aria-invalid]")) field.removeAttribute("aria-invalid");
}

for (const dialog of document.querySelectorAll("dialog[open]")) {
    dialog.close();
    dialog.showModal();
    dialog.addEventListener("close", () => dialog.open || forget(dialog)); // also told, late, of the close() above
}
