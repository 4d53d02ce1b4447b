// Keeps an examiner's numbers fresh. Each part is replaced by itself, and not while the keyboard is in it: a reload of the
// whole would take the focus away every second.
"use strict";

Live.follow(location.href, async (answer) => {
  if (!answer.ok || answer.redirected) return location.reload();
  const page = new DOMParser().parseFromString(await answer.text(), "text/html");
  for (const part of document.querySelectorAll("[data-fresh]")) {
    const fresh = page.getElementById(part.id);
    if (!fresh) return location.reload();
    if (part.contains(document.activeElement) && part !== document.activeElement) continue;
    if (fresh.innerHTML !== part.innerHTML) part.replaceChildren(...document.importNode(fresh, true).childNodes);
  }
});
