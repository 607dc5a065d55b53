// Follow a topic: rows come as HTML, escaped by the server. While paused, they wait in here, and of
// what waits and what is shown only the newest rows stay.
"use strict";

(() => {
  const table = document.getElementById("live");
  const body = table.tBodies[0];
  const said = document.getElementById("live-state");
  const button = document.getElementById("live-pause");
  const most = Number(table.dataset.most);
  const source = new EventSource(table.dataset.rows);
  let paused = false;
  let waiting = [];

  const show = (rows) => {
    body.prepend(...rows);
    while (body.rows.length > most) body.deleteRow(-1);
  };
  const say = () => {
    said.textContent = !paused ? "Following." : `Paused; waiting rows: ${waiting.length}.`;
  };

  said.textContent = "Connecting…";
  source.addEventListener("open", () => { button.hidden = false; say(); });
  source.addEventListener("error", () => {
    said.textContent = source.readyState === EventSource.CLOSED
      ? "It ended. Load the page again." : "The appliance does not answer; this page tries again.";
  });
  source.addEventListener("ended", (event) => {
    source.close();
    said.textContent = event.data;
  });
  source.addEventListener("rows", (event) => {
    const template = document.createElement("template");
    template.innerHTML = event.data;
    const rows = [...template.content.children];
    if (paused) {
      waiting = [...rows, ...waiting].slice(0, most);
      say();
    } else show(rows);
  });
  button.addEventListener("click", () => {
    paused = !paused;
    button.setAttribute("aria-pressed", String(paused));
    button.textContent = paused ? "Go on" : "Pause";
    if (!paused) { show(waiting); waiting = []; }
    say();
  });
})();
