// Three comforts; every page works without them. Kept in a file, so that a strict Content-Security-Policy holds.
"use strict";

// Tick all on this page.
for (const box of document.querySelectorAll("[data-tick-all]")) {
  box.addEventListener("change", () => {
    for (const tick of box.form.querySelectorAll('input[name="id"]')) tick.checked = box.checked;
  });
}

// Go on with the rest of a long replay.
for (const form of document.querySelectorAll("[data-go-on]")) setTimeout(() => form.requestSubmit(), 300);

// Numbers that stay fresh. While somebody is at work in them, or the page is hidden, they wait.
for (const part of document.querySelectorAll("[data-live]")) {
  setInterval(async () => {
    if (document.hidden || part.contains(document.activeElement)) return;
    const answer = await fetch(location.href, { credentials: "same-origin" }).catch(() => null);
    const page = answer && answer.ok && !answer.redirected ? new DOMParser().parseFromString(await answer.text(), "text/html") : null;
    const fresh = page && page.querySelector("[data-live]");
    part.classList.toggle("qk-stale", !fresh);
    if (fresh && !part.contains(document.activeElement)) part.replaceChildren(...fresh.childNodes);
  }, Number(part.dataset.live));
}
