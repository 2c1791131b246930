// What HTMX does not do by itself. Every page works without this file.
"use strict";
(() => {
  const shown = new Set([403, 404, 409, 412, 422, 428]);
  const live = () => document.getElementById("live");
  const door = () => {
    const found = document.getElementById("sign-in");
    if (found) return found;
    const made = document.createElement("dialog");
    made.id = "sign-in";
    made.className = "card login";
    made.setAttribute("aria-labelledby", "sign-in-title");
    document.body.append(made);
    return made;
  };
  const clock = () => new Date().toLocaleTimeString([], { hour: "2-digit", minute: "2-digit" });

  // A boosted page or an answer to a form is shown whatever its status; a failed poll leaves what stands.
  document.addEventListener("htmx:beforeSwap", (event) => {
    const { xhr, boosted, requestConfig } = event.detail;
    const isPoll = requestConfig.triggeringEvent === undefined && requestConfig.verb === "get" && !boosted;
    if (xhr.status >= 400 && (boosted || (shown.has(xhr.status) && !isPoll))) {
      event.detail.shouldSwap = true;
      event.detail.isError = false;
    }
    // A session that ended: sign in on top of the page, so that what was typed stays.
    if (xhr.status === 401 && !isPoll) {
      event.detail.target = door();
      event.detail.swapOverride = "innerHTML";
    }
    if (event.detail.target.id === "sign-in") {
      event.detail.shouldSwap = true;
      event.detail.isError = false;
    }
    if (xhr.status < 400) event.detail.target.classList.remove("is-stale");
  });

  const ask = () => {
    door().querySelector("[name=was]").value = document.body.dataset.user;
    if (!door().open) door().showModal();
  };
  document.addEventListener("htmx:afterSwap", (event) => {
    if (event.detail.target.id !== "sign-in") return;
    const done = door().querySelector("[data-token]");
    if (!done) {
      ask();
      return;
    }
    document.querySelectorAll("input[name=csrfmiddlewaretoken]").forEach((field) => { field.value = done.dataset.token; });
    live().textContent = done.textContent;
    live().hidden = false;
    door().close();
    door().replaceChildren();
  });

  // A form that the browser sends by itself would leave the page: it goes once the session stands.
  document.addEventListener("submit", async (event) => {
    const form = event.target;
    if (event.defaultPrevented || form.method !== "post" || form.dataset.checked || !document.body.dataset.user) return;
    event.preventDefault();
    const answer = await fetch("/login/", { headers: { "HX-Request": "true" } }).catch(() => null);
    if (answer && answer.status === 401) {
      door().innerHTML = await answer.text();
      htmx.process(door());
      ask();
      return;
    }
    form.dataset.checked = "yes";
    form.requestSubmit(event.submitter);
    delete form.dataset.checked;
  });

  // Stale: say since when and why, keep what is there.
  const stale = (why) => (event) => {
    const target = event.detail.target || event.detail.elt;
    if (!target || !target.id || target === document.body) {
      live().textContent = `At ${clock()} ${why}. The page still shows the earlier state. Try again.`;
      live().hidden = false;
      return;
    }
    let line = target.querySelector(":scope > .stale-line");
    if (!line) {
      line = document.createElement("p");
      line.className = "stale-line";
      target.prepend(line);
    }
    if (!target.classList.contains("is-stale")) line.textContent = `Not refreshed since ${clock()}: ${why}. The page tries again by itself.`;
    target.classList.add("is-stale");
  };
  document.addEventListener("htmx:sendError", stale("the portal did not answer"));
  document.addEventListener("htmx:timeout", stale("the portal did not answer in time"));
  document.addEventListener("htmx:responseError", (event) => {
    const { status } = event.detail.xhr;
    stale(status === 401 ? "your session has ended; sign in again" : `the portal answered with an error (${status})`)(event);
  });

  // A poll that found nothing new is 304; no swap, no flicker, no lost selection.
  document.addEventListener("htmx:beforeOnLoad", (event) => {
    if (event.detail.xhr.status === 304) event.preventDefault();
  });

  // After a boosted navigation the reader stands at the beginning of the new page.
  document.addEventListener("htmx:afterSettle", (event) => {
    if (!event.detail.requestConfig?.boosted) return;
    const main = document.getElementById("main");
    const fault = document.querySelector("[data-focus-first]");
    (fault || main)?.focus({ preventScroll: !fault });
  });

  const enhance = (root) => {
    root.querySelectorAll("[data-copy]").forEach((box) => {
      if (box.querySelector(":scope > button") || !navigator.clipboard) return;
      const button = document.createElement("button");
      button.type = "button";
      button.textContent = "Copy";
      button.addEventListener("click", async () => {
        await navigator.clipboard.writeText(box.querySelector("pre, code").textContent);
        button.textContent = "Copied";
        setTimeout(() => { button.textContent = "Copy"; }, 2000);
      });
      box.append(button);
    });
    root.querySelectorAll("[data-script-only]").forEach((part) => { part.hidden = false; });
    root.querySelectorAll("[data-no-script-only]").forEach((part) => { part.hidden = true; });
    root.querySelectorAll("[data-focus-first]").forEach((part) => part.focus());
  };
  document.addEventListener("DOMContentLoaded", () => enhance(document));
  document.addEventListener("htmx:load", (event) => enhance(event.detail.elt.parentElement || document));

  // "/" leads to the search, unless something is being typed.
  document.addEventListener("keydown", (event) => {
    const isTyped = event.target.closest?.("input, textarea, select, [contenteditable]");
    if (event.key !== "/" || isTyped || event.ctrlKey || event.metaKey || event.altKey || document.querySelector("dialog[open]")) return;
    const box = document.querySelector(".search input");
    if (!box) return;
    event.preventDefault();
    box.focus();
    box.select();
  });

  // One open menu at a time, Escape closes it.
  document.addEventListener("click", (event) => {
    document.querySelectorAll("details.menu[open]").forEach((menu) => { if (!menu.contains(event.target)) menu.open = false; });
  });
  document.addEventListener("keydown", (event) => {
    if (event.key !== "Escape") return;
    document.querySelectorAll("details.menu[open]").forEach((menu) => { menu.open = false; menu.querySelector("summary").focus(); });
  });
})();
