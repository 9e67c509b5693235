// Encodes a game as an animated GIF with a palette of 256 colors and LZW compression.
//
//   await saveGif(frames, game, "game.gif");   // frames and game in the format of board.js

import { BoardView } from "./board.js";

const CELL_PX = 28;
// Duration of a frame in hundredths of a second.
const FRAME_CS = 12;
const LAST_FRAME_CS = 300;
const MAX_COLORS = 256;
const MAX_CODE_BITS = 12;

/** Saves a blob as a file of the browser. */
export function saveFile(blob, name) {
  const saved = document.createElement("a");
  saved.href = URL.createObjectURL(blob);
  saved.download = name;
  saved.click();
  setTimeout(() => URL.revokeObjectURL(saved.href), 60000);
}

/** Saves the frames as a file of the browser. */
export const saveGif = async (frames, game, name) => saveFile(await encodeGif(frames, game), name);

async function encodeGif(frames, game) {
  const style = await (await fetch(new URL("style.css", import.meta.url))).text();
  const svg = document.createElementNS("http://www.w3.org/2000/svg", "svg");
  svg.setAttribute("class", "board");
  const view = new BoardView(svg, game);
  const [width, height] = [CELL_PX * game.width, CELL_PX * game.height];
  svg.setAttribute("width", width);
  svg.setAttribute("height", height);
  const canvas = Object.assign(document.createElement("canvas"), { width, height });
  const context = canvas.getContext("2d", { willReadFrequently: true });
  context.fillStyle = getComputedStyle(document.body).backgroundColor; // The color is visible at the rounded corners.
  context.fillRect(0, 0, width, height);
  const images = [];
  for (const frame of frames) {
    view.draw(frame);
    const text = new XMLSerializer().serializeToString(svg)
      .replace(">", `><style>${style.replace(/[<&]/g, "")}</style>`);
    const picture = new Image();
    picture.src = URL.createObjectURL(new Blob([text], { type: "image/svg+xml" }));
    await picture.decode();
    URL.revokeObjectURL(picture.src);
    context.drawImage(picture, 0, 0, width, height);
    images.push(reduceDepth(context.getImageData(0, 0, width, height).data));
  }
  return write(images, width, height);
}

/** Reduces RGBA pixels to 5 bits each of red, green and blue. */
function reduceDepth(pixels) {
  const colors = new Uint16Array(pixels.length / 4);
  for (let i = 0; i < colors.length; i += 1) {
    colors[i] = ((pixels[4 * i] >> 3) << 10) | ((pixels[4 * i + 1] >> 3) << 5) | (pixels[4 * i + 2] >> 3);
  }
  return colors;
}

/** Returns a palette of the most frequent colors, and each color's nearest palette index. */
function palette(images) {
  const counts = new Uint32Array(32768);
  for (const image of images) for (const color of image) counts[color] += 1;
  const seen = [...counts.keys()].filter((color) => counts[color]);
  const kept = [...seen].sort((a, b) => counts[b] - counts[a]).slice(0, MAX_COLORS);
  const parts = (color) => [color >> 10, (color >> 5) & 31, color & 31];
  const distance = (a, b) => parts(a).reduce((sum, part, i) => sum + (part - parts(b)[i]) ** 2, 0);
  const index = new Uint8Array(32768);
  for (const color of seen) {
    index[color] = kept.reduce((best, one, i) =>
      (distance(one, color) < distance(kept[best], color) ? i : best), 0);
  }
  return { kept: kept.map((color) => parts(color).map((part) => (part << 3) | (part >> 2))), index };
}

function write(images, width, height) {
  const { kept, index } = palette(images);
  const bytes = [];
  const word = (value) => bytes.push(value & 255, value >> 8);
  const text = (letters) => bytes.push(...[...letters].map((letter) => letter.charCodeAt(0)));
  text("GIF89a");
  word(width);
  word(height);
  bytes.push(0xf7, 0, 0); // All images share one palette of 256 colors.
  for (let i = 0; i < MAX_COLORS; i += 1) bytes.push(...(kept[i] ?? [0, 0, 0]));
  bytes.push(0x21, 0xff, 11);
  text("NETSCAPE2.0");
  bytes.push(3, 1, 0, 0, 0); // The animation repeats forever.
  let previous = null;
  images.forEach((image, i) => {
    const indices = Uint8Array.from(image, (color) => index[color]);
    const [left, top, right, bottom] = changedBox(indices, previous, width, height);
    previous = indices;
    bytes.push(0x21, 0xf9, 4, 4);
    word(i === images.length - 1 ? LAST_FRAME_CS : FRAME_CS);
    bytes.push(0, 0, 0x2c);
    [left, top, right - left, bottom - top].forEach(word);
    bytes.push(0, 8);
    const part = [];
    for (let y = top; y < bottom; y += 1) part.push(...indices.subarray(y * width + left, y * width + right));
    const packed = compress(part);
    for (let at = 0; at < packed.length; at += 255) {
      const block = packed.slice(at, at + 255);
      bytes.push(block.length, ...block);
    }
    bytes.push(0);
  });
  bytes.push(0x3b);
  return new Blob([Uint8Array.from(bytes)], { type: "image/gif" });
}

/** Returns the smallest rectangle that contains all changes and at least one pixel. */
function changedBox(indices, previous, width, height) {
  if (!previous) return [0, 0, width, height];
  let [left, top, right, bottom] = [width, height, 0, 0];
  indices.forEach((value, i) => {
    if (value === previous[i]) return;
    const [x, y] = [i % width, Math.floor(i / width)];
    [left, right] = [Math.min(left, x), Math.max(right, x + 1)];
    [top, bottom] = [Math.min(top, y), Math.max(bottom, y + 1)];
  });
  return right ? [left, top, right, bottom] : [0, 0, 1, 1];
}

/** Compresses bytes with the variable-length LZW codes of GIF. */
function compress(values) {
  const [CLEAR, END] = [256, 257];
  const out = [];
  let [buffer, filled, size, next] = [0, 0, 9, 258];
  let codes = new Map();
  const emit = (code) => {
    buffer |= code << filled;
    for (filled += size; filled >= 8; filled -= 8) {
      out.push(buffer & 255);
      buffer >>>= 8;
    }
  };
  emit(CLEAR);
  let prefix = values[0];
  for (const value of values.slice(1)) {
    const pair = (prefix << 8) | value;
    if (codes.has(pair)) {
      prefix = codes.get(pair);
      continue;
    }
    emit(prefix);
    prefix = value;
    if (next === 1 << MAX_CODE_BITS) {
      emit(CLEAR);
      [size, next, codes] = [9, 258, new Map()];
      continue;
    }
    if (next === 1 << size) size += 1;
    codes.set(pair, next);
    next += 1;
  }
  emit(prefix);
  emit(END);
  if (filled) out.push(buffer & 255);
  return out;
}
