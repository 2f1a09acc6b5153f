import { isUtf8 } from 'node:buffer'
import { fstatSync } from 'node:fs'
import { open } from 'node:fs/promises'
import type { Readable } from 'node:stream'

/** A list of texts, one per line, opened for reading. */
export interface List {
  readonly chunks: AsyncIterable<Uint8Array>
  /** How much of it has been read, 0 to 1; undefined if its length is not known. */
  fraction(): number | undefined
  /** Stops reading, even while it waits for more. */
  close(): void
}

/** A line as text without its line ending, or the reason why it cannot be text. */
export type Line = string | BrokenLine

interface BrokenLine {
  /** One clause that never quotes the line. */
  readonly reason: string
  /** The line unchanged, without its ending; undefined if it is too long to be kept. */
  readonly original?: Original
}

/** An unchanged line or record, without its ending. */
export type Original = string | Uint8Array

/** The list cannot be read as lines. The message ends with the next action. */
export class ListError extends Error {
  override readonly name = 'ListError'
}

/**
 * A longer line is dropped, so that a list without line endings does not fill the memory. While a line is stored, about
 * ten copies of it are alive or not yet collected.
 */
export const MAX_LINE_BYTES: number = 4 * 2 ** 20

/** The file descriptor of standard input. */
export const STDIN = 0

const LINE_FEED = 0x0a
const CARRIAGE_RETURN = 0x0d
/** The number of bytes that are examined to recognize a format. */
const SNIFFED_BYTES = 4_096
const BYTE_ORDER_MARK = '\uFEFF'

const TOO_LONG: BrokenLine = { reason: `it is longer than ${MAX_LINE_BYTES / 2 ** 20} MiB` }
/** If such a line were decoded, it would hold U+FFFD, and two different texts could become equal. */
const NOT_UTF8 = 'it is not valid UTF-8'
/** `new URL` would drop the CR, so that two texts would become one URL. */
const HAS_CARRIAGE_RETURN = 'it contains a carriage return (CR) before its end'

/**
 * Opens a list.
 *
 * @param name a file name, or `-` for standard input
 * @throws ListError if it cannot be opened
 */
export async function openList(name: string): Promise<List> {
  if (name === '-') {
    if (fstatSync(STDIN).isDirectory()) throw new ListError('Standard input is a folder. Redirect a file to it.')
    return listOf(process.stdin, undefined)
  }
  try {
    const file = await open(name)
    const stat = await file.stat()
    if (stat.isDirectory()) {
      await file.close()
      throw new ListError(`"${name}" is a folder. Name a file.`)
    }
    return listOf(file.createReadStream(), stat.isFile() ? stat.size : undefined)
  } catch (error) {
    if (error instanceof ListError) throw error
    const reason = error instanceof Error ? error.message : String(error)
    throw new ListError(`Cannot open the list: ${reason}`, { cause: error })
  }
}

function listOf(stream: Readable & { readonly bytesRead?: number }, size: number | undefined): List {
  return {
    chunks: stream as AsyncIterable<Uint8Array>,
    fraction: () => (size ? Math.min(1, (stream.bytesRead ?? 0) / size) : undefined),
    close: () => {
      stream.destroy()
    },
  }
}

/**
 * Reads a list as lines. With each chunk, it yields the lines that the chunk completes. A line ends with LF or CRLF.
 * The last line may have no ending. A byte order mark at the start is dropped.
 *
 * @throws ListError for a list that is compressed, binary, UTF-16, or ends its lines with CR alone
 */
export async function* readLines(chunks: AsyncIterable<Uint8Array>): AsyncGenerator<Line[], void, undefined> {
  const begun = new BegunLine()
  let first = true
  const finish = (lines: Line[]): Line[] => {
    if (!first) return lines
    first = false
    const [line] = lines
    if (typeof line === 'object' && line.reason === HAS_CARRIAGE_RETURN) {
      throw new ListError(`The list ends its lines with CR alone. Convert it: tr '\\r' '\\n' < LIST > NEW-LIST`)
    }
    if (typeof line === 'string' && line.startsWith(BYTE_ORDER_MARK)) lines[0] = line.slice(1)
    return lines
  }
  for await (const piece of chunks) {
    const chunk = Buffer.from(piece.buffer, piece.byteOffset, piece.byteLength)
    if (first && begun.length < SNIFFED_BYTES) refuseForeignFormat(begun.followedBy(chunk))
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
  if (begun.length > 0) yield finish([begun.end()])
}

/** The line whose ending has not arrived yet. */
class BegunLine {
  private pieces: Buffer[] = []
  private bytes = 0
  private hasCarriageReturn = false

  get length(): number {
    return this.bytes
  }

  add(piece: Buffer): void {
    if (piece.length === 0) return
    this.bytes += piece.length
    // The last byte may belong to CRLF.
    this.hasCarriageReturn ||= piece.subarray(0, -1).includes(CARRIAGE_RETURN)
    if (this.bytes > MAX_LINE_BYTES) this.pieces = []
    else this.pieces.push(piece)
  }

  end(): Line {
    const { pieces, bytes, hasCarriageReturn } = this
    this.pieces = []
    this.bytes = 0
    this.hasCarriageReturn = false
    if (bytes > MAX_LINE_BYTES) return hasCarriageReturn ? { reason: HAS_CARRIAGE_RETURN } : TOO_LONG
    return decodeLine(pieces.length === 1 && pieces[0] ? pieces[0] : Buffer.concat(pieces))
  }

  /** Returns the line so far, and enough of the next chunk to recognize a format. */
  followedBy(chunk: Buffer): Buffer {
    return Buffer.concat([...this.pieces, chunk.subarray(0, SNIFFED_BYTES)])
  }
}

/** Decodes whole lines at once and pushes them to `lines`. This is several times faster than one by one. */
function decodeBlock(block: Buffer, lines: Line[]): void {
  if (isUtf8(block)) {
    for (const line of block.toString('utf8').split('\n')) lines.push(withoutLineEnding(line))
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
  return isUtf8(line) ? withoutLineEnding(line.toString('utf8')) : { reason: NOT_UTF8, original: line }
}

function withoutLineEnding(line: string): Line {
  const found = line.indexOf('\r')
  if (found === -1) return line
  return found === line.length - 1 ? line.slice(0, -1) : { reason: HAS_CARRIAGE_RETURN, original: line }
}

/** The first bytes of files that are not lists, as patterns of hexadecimal digits. */
const FOREIGN_FORMATS: readonly (readonly [start: string, format: string, unpack: string])[] = [
  ['1f8b', 'compressed with gzip', 'gzip -dc'],
  // A text may begin with `BZh`, so the pattern includes the start of a block, or the end of an empty file.
  ['425a683[1-9](?:314159265359|177245385090)', 'compressed with bzip2', 'bzip2 -dc'],
  ['fd377a585a00', 'compressed with xz', 'xz -dc'],
  ['28b52ffd', 'compressed with zstd', 'zstd -dc'],
  ['504b0304', 'a zip archive', 'unzip -p'],
]

/** Refuses other formats. Otherwise each line would be refused for another reason, and the command would succeed. */
function refuseForeignFormat(start: Buffer): void {
  const hex = start.subarray(0, 10).toString('hex')
  if (/^(?:fffe|feff)/.test(hex))
    throw new ListError('The list is UTF-16. Convert it: iconv -f UTF-16 -t UTF-8 LIST > NEW-LIST')
  const known = FOREIGN_FORMATS.find(([mark]) => new RegExp(`^${mark}`).test(hex))
  if (known)
    throw new ListError(`The list is ${known[1]}. Unpack it: ${known[2]} LIST | typeorm-unique-text import … -`)
  const nul = start.indexOf(0)
  if (nul === -1) return
  const inFirstLine = !start.subarray(0, nul).includes(LINE_FEED)
  if (inFirstLine || !isUtf8(start.subarray(0, start.lastIndexOf(LINE_FEED)))) {
    throw new ListError('The list is binary data. Name a UTF-8 text file with one text per line.')
  }
}

/** The unchanged line; undefined if it is too long to be kept. */
export const originalOf = (line: Line): Original | undefined => (typeof line === 'string' ? line : line.original)
