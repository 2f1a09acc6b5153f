import { isUtf8 } from 'node:buffer'

/** A line as a text without its line end, or why it cannot be one. */
export type Line = string | BrokenLine

export interface BrokenLine {
  /** One clause that never quotes the line. */
  readonly reason: string
}

/** The list cannot be read as lines at all. */
export class ListError extends Error {
  override readonly name = 'ListError'
}

/** Of a longer line nothing is kept: a list without line ends must not fill the memory. */
export const MAX_LINE_BYTES: number = 16 * 2 ** 20

const LINE_FEED = 0x0a
const BYTE_ORDER_MARK = '\uFEFF'

const TOO_LONG: BrokenLine = { reason: `it is longer than ${MAX_LINE_BYTES / 2 ** 20} MiB` }
/** Decoded all the same it would hold U+FFFD, and two different texts could become one. */
const NOT_UTF8: BrokenLine = { reason: 'it is not valid UTF-8' }

/**
 * The lines of a list of texts, as many at a time as each chunk completes. A line ends with LF or CRLF, the last one
 * perhaps with nothing. A byte order mark before the first is dropped.
 *
 * @throws ListError for UTF-16
 */
export async function* readLines(chunks: AsyncIterable<Uint8Array>): AsyncGenerator<Line[], void, undefined> {
  const begun = new BegunLine()
  let first = true
  const finish = (lines: Line[]): Line[] => {
    if (first && typeof lines[0] === 'string') lines[0] = withoutMark(lines[0])
    first &&= lines.length === 0
    return lines
  }
  for await (const piece of chunks) {
    const chunk = Buffer.from(piece.buffer, piece.byteOffset, piece.byteLength)
    if (first && begun.isEmpty) refuseUtf16(chunk)
    const head = chunk.indexOf(LINE_FEED)
    if (head === -1) {
      begun.add(chunk)
      continue
    }
    begun.add(chunk.subarray(0, head))
    const tail = chunk.lastIndexOf(LINE_FEED)
    const lines = [begun.end()]
    if (tail > head) decodeBlock(chunk.subarray(head + 1, tail), lines)
    yield finish(lines)
    begun.add(chunk.subarray(tail + 1))
  }
  if (!begun.isEmpty) yield finish([begun.end()])
}

/** The line whose end has not come yet. */
class BegunLine {
  private pieces: Buffer[] = []
  private bytes = 0

  get isEmpty(): boolean {
    return this.bytes === 0
  }

  add(piece: Buffer): void {
    if (piece.length === 0) return
    this.bytes += piece.length
    if (this.bytes > MAX_LINE_BYTES) this.pieces = []
    else this.pieces.push(piece)
  }

  end(): Line {
    const { pieces, bytes } = this
    this.pieces = []
    this.bytes = 0
    if (bytes > MAX_LINE_BYTES) return TOO_LONG
    return decodeLine(pieces.length === 1 && pieces[0] ? pieces[0] : Buffer.concat(pieces))
  }
}

/** Whole lines at once, which is several times faster than one by one; they are pushed to `lines`. */
function decodeBlock(block: Buffer, lines: Line[]): void {
  if (isUtf8(block)) {
    for (const line of block.toString('utf8').split('\n')) lines.push(withoutCarriageReturn(line))
    return
  }
  let start = 0
  while (start <= block.length) {
    const found = block.indexOf(LINE_FEED, start)
    const end = found === -1 ? block.length : found
    lines.push(decodeLine(block.subarray(start, end)))
    start = end + 1
  }
}

function decodeLine(line: Buffer): Line {
  return isUtf8(line) ? withoutCarriageReturn(line.toString('utf8')) : NOT_UTF8
}

const withoutCarriageReturn = (line: string): string => (line.endsWith('\r') ? line.slice(0, -1) : line)

const withoutMark = (line: string): string => (line.startsWith(BYTE_ORDER_MARK) ? line.slice(1) : line)

/** What Windows calls "Unicode". Its lines would all be refused, each for another reason. */
function refuseUtf16(chunk: Buffer): void {
  const mark = chunk.subarray(0, 2).toString('hex')
  if (mark !== 'fffe' && mark !== 'feff') return
  throw new ListError('The list is UTF-16. Convert it: iconv -f UTF-16 -t UTF-8 LIST > NEW-LIST')
}
