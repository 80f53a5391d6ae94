/* The table of the cluster setup: a row that is not set here shows the node's own roles, which nobody can tick. */

import "./dialog.js";

const form = document.getElementById("setup");

function follow(row) {
    const listed = row.querySelector("[data-listed]");
    if (listed.disabled) return;
    row.classList.toggle("unset", !listed.checked);
    row.querySelector("[data-said]").textContent = listed.checked ? "set" : "not set";
    for (const box of row.querySelectorAll(".box input")) box.disabled = !listed.checked;
}

const rows = [...form.querySelectorAll("[data-row]")];
form.addEventListener("change", (event) => event.target.matches("[data-listed]") && follow(event.target.closest("[data-row]")));
form.addEventListener("reset", () => setTimeout(() => rows.forEach(follow)));
rows.forEach(follow); // a browser may bring back what was ticked before the page was left
