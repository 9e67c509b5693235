/* The game of the start page receives keys while most of its board is visible.

   Escape returns the keys to the page, and a click on the game returns them to the game. */
addEventListener("DOMContentLoaded", () => {
  const frame = document.querySelector("iframe[src='play/index.html']");
  const keys = new Set(["ArrowUp", "ArrowDown", "ArrowLeft", "ArrowRight", "w", "a", "s", "d"]);
  let visible = false, released = false;
  new IntersectionObserver(([entry]) => {
    visible = entry.intersectionRatio >= 0.5;
    if (!visible) released = false;
  }, { threshold: [0, 0.5, 1] }).observe(frame);
  addEventListener("keydown", (event) => {
    if (event.key === "Escape") released = true;
    if (!visible || released || !keys.has(event.key)) return;
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    if (event.target.closest?.("input, select, textarea, [contenteditable]")) return;
    event.preventDefault();
    frame.contentWindow.postMessage({ key: event.key }, location.origin);
  });
});
