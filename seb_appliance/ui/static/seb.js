// What htmx does not: say when the appliance is silent, rest in the background, copy, choose, colour, close
// menus.
// Every page works without this file.
"use strict";

(() => {
  const say = (id, isSo) => {
    const shown = document.getElementById(id);
    if (shown) shown.hidden = !isSo;
    document.body.classList.toggle(id, isSo);
  };
  document.addEventListener("htmx:sendError", () => say("lost", true));
  document.addEventListener("htmx:timeout", () => say("lost", true));
  document.addEventListener("htmx:afterOnLoad", () => say("lost", false));
  document.addEventListener("htmx:responseError", (event) => {
    if (event.detail.xhr.status === 404) say("gone", true);
  });

  // A page in the background asks for nothing by itself, and a part of a page that has the focus
  // stays as it is, unless htmx can give the focus back, by its id.
  document.addEventListener("htmx:beforeRequest", (event) => {
    const byItself = event.detail.requestConfig.headers["Seb-By-Itself"];
    const focused = event.detail.target.contains(document.activeElement) && !document.activeElement.matches("a[id]");
    if (byItself && (document.hidden || focused)) event.preventDefault();
  });

  // A form is sent only while the appliance answers; else the browser would show a page of its own
  // in place of what was typed. What was typed is kept until the next page is here, because that
  // may be the log-in.
  const kept = "typed";
  document.addEventListener("submit", async (event) => {
    const form = event.target;
    if (form.method !== "post" || form.dataset.sent === "yes") return;
    event.preventDefault();
    if (form.dataset.sent) return;
    form.dataset.sent = "asking";
    const answered = await fetch("/healthz", { cache: "no-store", signal: AbortSignal.timeout(5000) }).then(() => true, () => false);
    say("lost", !answered);
    if (!answered) return delete form.dataset.sent;
    if (!form.querySelector("[type=password]")) {
      const typed = [...new FormData(form)].filter(([name]) => name !== "form_id");
      sessionStorage.setItem(kept, JSON.stringify([form.action, typed]));
    }
    form.dataset.sent = "yes";
    form.requestSubmit(event.submitter);
  });
  document.addEventListener("DOMContentLoaded", () => {
    if (location.pathname === "/ui/login") return;
    const [action, typed] = JSON.parse(sessionStorage.getItem(kept) ?? "[]");
    sessionStorage.removeItem(kept);
    if (!document.referrer.startsWith(`${location.origin}/ui/login`)) return;
    const form = [...document.forms].find((one) => one.action === action);
    for (const [name, text] of form ? typed : []) {
      const field = form.elements[name];
      if (field?.type === "checkbox") field.checked = true;
      else if (field && field.type !== "hidden") field.value = text;
    }
    form?.scrollIntoView();
  });

  // A button with data-copy="ID" copies the text of that element.
  document.addEventListener("click", (event) => {
    const button = event.target.closest("button[data-copy]");
    if (!button) return;
    const found = document.getElementById(button.dataset.copy);
    const element = found.querySelector("pre") ?? found;
    const said = () => { button.textContent = "Copied"; };
    if (navigator.clipboard) navigator.clipboard.writeText(element.textContent).then(said);
    else { // A page by plain HTTP has no clipboard, but may copy what is selected.
      getSelection().selectAllChildren(element);
      if (document.execCommand("copy")) said();
    }
  });

  // A box with data-all="NAME" chooses all boxes of its table that have this name.
  document.addEventListener("change", (event) => {
    const name = event.target.dataset?.all;
    if (!name) return;
    const boxes = event.target.closest("table").querySelectorAll(`input[name="${name}"]`);
    for (const box of boxes) box.checked = event.target.checked;
  });

  // A file is read into the field that data-into names.
  for (const chooser of document.querySelectorAll("[data-into]")) {
    chooser.hidden = false;
    chooser.addEventListener("change", async (event) => {
      document.getElementById(chooser.dataset.into).value = await event.target.files[0].text();
    });
  }

  // Ctrl K finds a page; up and down go through what was found.
  const palette = document.getElementById("palette");
  const openPalette = (event) => {
    event.preventDefault();
    palette.showModal();
    palette.querySelector("input").select();
  };
  document.addEventListener("keydown", (event) => {
    if (!palette) return;
    if (event.key === "k" && (event.ctrlKey || event.metaKey)) openPalette(event);
    if (!palette.open || !["ArrowDown", "ArrowUp", "Enter"].includes(event.key)) return;
    const found = [...palette.querySelectorAll("a")];
    const at = found.indexOf(document.activeElement);
    if (event.key === "Enter" && at >= 0) return;
    event.preventDefault();
    if (event.key === "Enter") found[0]?.click();
    else (found[at + (event.key === "ArrowDown" ? 1 : -1)] ?? palette.querySelector("input")).focus();
  });
  document.addEventListener("click", (event) => {
    if (palette && event.target.closest("a.find")) openPalette(event);
    if (event.target === palette) palette.close();
  });

  // What is current is in sight, and what a link points to is open. Only the header's bar is scrolled:
  // the page may be at a problem that has the focus.
  const current = document.querySelector("header [aria-current]"), bar = current?.closest("nav");
  if (bar) bar.scrollLeft += current.getBoundingClientRect().left - bar.getBoundingClientRect().left - (bar.clientWidth - current.offsetWidth) / 2;
  const openTarget = () => {
    const target = document.getElementById(location.hash.slice(1));
    if (target?.matches("details")) target.open = true;
    target?.querySelector("summary, input")?.focus();
  };
  openTarget();
  addEventListener("hashchange", openTarget);

  // In a list of records, up and down (or k and j) go from one to the next.
  document.addEventListener("keydown", (event) => {
    const line = event.target.closest?.(".records summary");
    const by = { ArrowDown: 1, j: 1, ArrowUp: -1, k: -1 }[event.key];
    if (!line || !by || event.ctrlKey || event.metaKey || event.altKey) return;
    const lines = [...line.closest("table").querySelectorAll(".record summary")];
    lines[lines.indexOf(line) + by]?.focus();
    event.preventDefault();
  });

  // On the page of a record, left and right (or k and j) go to its neighbours. In a list, up or down
  // begin with the first record.
  document.addEventListener("keydown", (event) => {
    if (event.target !== document.body && event.target !== document.getElementById("main")) return;
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const way = { ArrowLeft: "prev", k: "prev", ArrowRight: "next", j: "next" }[event.key];
    document.querySelector(`main a[rel="${way}"]`)?.click();
    if (["j", "k"].includes(event.key)) document.querySelector(".records summary")?.focus();
  });

  // A field of a time in UTC is in the time of this browser, says what that is in UTC, and is sent as UTC.
  const inUtc = (text) => text && new Date(text).toISOString().slice(0, 19);
  const inZone = (text) => {
    const at = new Date(`${text}Z`);
    return new Date(at - at.getTimezoneOffset() * 60_000).toISOString().slice(0, 19);
  };
  const sayUtc = (field) => {
    const said = field.value ? `UTC ${inUtc(field.value).replace("T", " ")}` : "your time";
    field.labels[0].querySelector("[data-zone]").textContent = said;
  };
  document.addEventListener("DOMContentLoaded", () => {
    for (const field of document.querySelectorAll("input[data-utc]")) {
      if (field.value) field.value = inZone(field.value);
      sayUtc(field);
      field.addEventListener("input", () => sayUtc(field));
      field.form.addEventListener("formdata", (event) => event.formData.set(field.name, inUtc(field.value)));
    }
  });

  // A time says on demand what it is on this machine.
  document.addEventListener("mouseover", (event) => {
    const time = event.target.closest("time[datetime]");
    if (!time || time.dataset.local) return;
    time.dataset.local = new Date(time.dateTime).toLocaleString(undefined, { timeZoneName: "short" });
    time.title += `\n${time.dataset.local}`;
  });

  // JSON is coloured by the browser: the page holds plain text.
  const tokens = /"(?:[^"\\]|\\.)*"(\s*:)?|-?\d+(?:\.\d+)?(?:[eE][+-]?\d+)?|\b(?:true|false|null)\b/g;
  const ranges = (pre) => {
    const nodes = []; // of the text, which marks may have split
    const walker = document.createTreeWalker(pre, NodeFilter.SHOW_TEXT);
    for (let at = 0; walker.nextNode(); at += walker.currentNode.length) nodes.push([at, walker.currentNode]);
    const place = (at) => {
      const [begin, node] = nodes.findLast(([first]) => first < at) ?? nodes[0];
      return [node, at - begin];
    };
    return [...pre.textContent.matchAll(tokens)].map((token) => {
      const range = document.createRange();
      range.setStart(...place(token.index));
      range.setEnd(...place(token.index + token[0].length));
      return [token[1] ? "key" : token[0][0] === '"' ? "text" : "other", range];
    });
  };
  const colour = () => {
    if (!CSS.highlights) return;
    const shown = [...document.querySelectorAll('pre[data-kind="JSON"]')]
      .filter((pre) => pre.checkVisibility() && pre.textContent.length < 100_000);
    const found = shown.flatMap(ranges);
    for (const kind of ["key", "text", "other"]) {
      const of = found.filter(([name]) => name === kind).map(([, range]) => range);
      CSS.highlights.set(`json-${kind}`, new Highlight(...of));
    }
  };
  document.addEventListener("DOMContentLoaded", colour);
  document.addEventListener("htmx:afterSettle", colour);
  document.addEventListener("toggle", (event) => { if (event.target.closest(".record")) colour(); }, true);

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
