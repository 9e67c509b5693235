/* The game of the start page is as high as its contents, and receives keys while most of it is visible.

   Escape returns the keys to the page, and a click on the game returns them to the game. */
addEventListener("DOMContentLoaded", () => {
  const frame = document.querySelector("iframe[src='play/index.html']");
  const keys = new Set(["ArrowUp", "ArrowDown", "ArrowLeft", "ArrowRight", "w", "a", "s", "d"]);
  let visible = false, released = false;
  frame.addEventListener("load", () => {
    const page = frame.contentDocument.documentElement;
    page.classList.add("embedded");
    new ResizeObserver(() => { frame.style.height = `${page.offsetHeight}px`; }).observe(page);
  });
  new IntersectionObserver(([entry]) => {
    const height = entry.intersectionRect.height;
    visible = height >= Math.min(entry.boundingClientRect.height, innerHeight) / 2;
    if (!visible) released = false;
  }, { threshold: [0, 0.2, 0.3, 0.4, 0.5, 0.6, 0.8, 1] }).observe(frame);
  addEventListener("keydown", (event) => {
    if (event.key === "Escape") released = true;
    if (!visible || released || !keys.has(event.key)) return;
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    if (event.target.closest?.("input, select, textarea, [contenteditable]")) return;
    event.preventDefault();
    frame.contentWindow.postMessage({ key: event.key }, location.origin);
  });
});
