// What htmx does not: say when the appliance is silent, rest in the background, copy, close menus.
// Every page works without this file.
"use strict";

(() => {
  const lost = (isLost) => {
    const shown = document.getElementById("lost");
    if (shown) shown.hidden = !isLost;
  };
  document.addEventListener("htmx:sendError", () => lost(true));
  document.addEventListener("htmx:timeout", () => lost(true));
  document.addEventListener("htmx:afterOnLoad", () => lost(false));

  // A page in the background asks for nothing by itself.
  document.addEventListener("htmx:beforeRequest", (event) => {
    const byItself = event.detail.requestConfig.headers["Seb-By-Itself"];
    if (byItself && document.hidden) event.preventDefault();
  });

  // A button with data-copy="ID" copies the text of that element.
  document.addEventListener("click", (event) => {
    const button = event.target.closest("button[data-copy]");
    if (!button) return;
    navigator.clipboard.writeText(document.getElementById(button.dataset.copy).textContent)
      .then(() => { button.textContent = "Copied"; });
  });

  // The menu of the account closes with Escape, and when something else is clicked.
  document.addEventListener("keydown", (event) => {
    const menu = document.querySelector("details.account[open]");
    if (menu && event.key === "Escape") { menu.open = false; menu.firstElementChild.focus(); }
  });
  document.addEventListener("click", (event) => {
    const menu = document.querySelector("details.account[open]");
    if (menu && !menu.contains(event.target)) menu.open = false;
  });
})();
