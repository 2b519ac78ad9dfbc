// The data behind a picture: as a table, as a CSV file, and the picture itself as a file.

import { colors } from "./canvas.js";

const MARGIN = 16, LINE = 20; // pixels

/**
 * For who cannot see it, or wants to use it elsewhere. `rows`: those of the table, made when it is opened; `all`: those
 * of the CSV file; `names`: [text, colour] of what is drawn, for the picture's legend.
 */
export function addData(board, rows, all, names) {
  const { figure } = board;
  const details = document.createElement("details");
  details.className = "data";
  const summary = document.createElement("summary");
  summary.textContent = "Data as a table";
  details.append(summary);
  const fill = () => {
    details.querySelector(".scroll")?.remove();
    if (!details.open) return;
    const [head, ...body] = rows();
    const table = document.createElement("table");
    const add = (cells, kind, parent) => {
      const row = parent.insertRow();
      for (const text of cells) row.append(Object.assign(document.createElement(kind), { textContent: text }));
    };
    add(head, "th", table.createTHead());
    const rest = table.createTBody();
    for (const cells of body) add(cells, "td", rest);
    const scroll = document.createElement("div");
    scroll.className = "scroll";
    scroll.tabIndex = 0;
    scroll.append(table);
    details.append(scroll);
  };
  details.addEventListener("toggle", fill);
  const line = document.createElement("div");
  line.className = "behind";
  line.append(
    details,
    button("Picture", () => savePicture(board, names())),
    button("CSV", () => save(new Blob([csv(all())], { type: "text/csv" }), board, "csv")),
  );
  figure.append(line);
}

function button(text, act) {
  const made = Object.assign(document.createElement("button"), { type: "button", className: "quiet", textContent: text });
  made.title = text === "CSV" ? "Download all points of this picture" : "Download this picture as PNG";
  made.addEventListener("click", act);
  return made;
}

/** Where a picture shows one run, its file bears that run's name; folders are named by anybody. */
function save(blob, { run, figure }, kind) {
  const name = [run, figure.id].filter(Boolean).join("-").replace(/[^\p{L}\p{N}._-]+/gu, "_");
  const link = Object.assign(document.createElement("a"), { href: URL.createObjectURL(blob), download: `afedpg-${name}.${kind}` });
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 10000); // the download has begun by then
}

/** RFC 4180. A name that a spreadsheet would take for a formula is kept from it: run folders are named by anybody. */
export function csv(rows) {
  const cell = (value) => {
    if (value === null || value === undefined) return "";
    const text = typeof value === "string" && /^[=+\-@\t\r]/.test(value) ? `'${value}` : `${value}`;
    return /[",\r\n]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
  };
  return rows.map((row) => `${row.map(cell).join(",")}\r\n`).join("");
}

/** On the page a picture has its title, its legend and the page's colour around it; as a file it brings them along. */
function savePicture(board, names) {
  board.draw();
  const { canvas, figure, width } = board, density = canvas.width / width, theme = colors();
  const sheet = document.createElement("canvas"), context = sheet.getContext("2d");
  const height = MARGIN + 1.5 * LINE + board.height + names.length * LINE + MARGIN;
  [sheet.width, sheet.height] = [(width + 2 * MARGIN) * density, height * density];
  context.scale(density, density);
  context.fillStyle = theme.card;
  context.fillRect(0, 0, width + 2 * MARGIN, height);
  context.fillStyle = theme.ink;
  context.textBaseline = "middle";
  context.font = "600 16px system-ui, sans-serif";
  context.fillText(figure.querySelector("h2").textContent, MARGIN, MARGIN + LINE / 2, width);
  context.drawImage(canvas, MARGIN, MARGIN + 1.5 * LINE, width, board.height);
  context.font = "12px system-ui, sans-serif";
  names.forEach(([text, color], i) => {
    const y = height - MARGIN - (names.length - i - 0.5) * LINE;
    context.fillStyle = color;
    context.fillRect(MARGIN, y - 2, 18, 4);
    context.fillStyle = theme.ink;
    context.fillText(text, MARGIN + 26, y, width - 26);
  });
  sheet.toBlob((blob) => save(blob, board, "png"));
}
