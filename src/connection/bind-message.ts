import { type ParameterOptions, parameterText } from '../sql/parameter-text'

/** A parameter as it goes to the server: as text, or as bytes. */
export type Parameter = string | Buffer | null

/** Values as `pg` would send them; undefined if one is another kind of object, which only `pg` can convert. */
export function plainTexts(values: readonly unknown[], dates: ParameterOptions = {}): Parameter[] | undefined {
  const texts: Parameter[] = []
  for (const value of values) {
    if (typeof value === 'string') texts.push(value)
    else if (value === null || value === undefined) texts.push(null)
    else if (Array.isArray(value) && !value.some(isObject)) texts.push(parameterText(value))
    else if (value instanceof Date) texts.push(parameterText(value, dates))
    else if (Buffer.isBuffer(value)) texts.push(value)
    else if (typeof value === 'object') return undefined
    else texts.push((value as { toString(): string }).toString())
  }
  return texts
}

const isObject = (value: unknown): boolean => typeof value === 'object' && value !== null

/** Of the unnamed portal. */
const DESCRIBE = 'D\0\0\0\x06P\0'
/** Without a limit of rows. */
const EXECUTE = 'E\0\0\0\x09\0\0\0\0\0'
/** After it the server answers, whatever has failed. */
export const SYNC = 'S\0\0\0\x04'

/**
 * The messages that run a command once, as one character for each byte.
 *
 * @param sql ASCII, shorter than 240 characters
 */
export const commandMessages = (sql: string): string =>
  `P\0\0\0${String.fromCodePoint(4 + 1 + sql.length + 1 + 2)}\0${sql}\0\0\0B\0\0\0\x0c\0\0\0\0\0\0\0\0${EXECUTE}`

/**
 * The messages that run a prepared statement, in one piece: a write for each would cost more than all else that the
 * client does.
 *
 * @param name of the statement, ASCII
 * @param values null for NULL
 * @param describe asks for the types of the columns as well
 * @param after what follows, one character for each byte
 */
export function runMessages(
  name: string,
  values: readonly Parameter[],
  describe: boolean,
  after: string = SYNC,
): Buffer {
  let length = 4 + 1 + name.length + 1 + 2 + 2 + 2
  for (const value of values) length += 4 + (value === null ? 0 : Buffer.byteLength(value))
  const formats = values.some((value) => Buffer.isBuffer(value)) ? values.length : 0
  length += 2 * formats
  const tail = (describe ? DESCRIBE + EXECUTE : EXECUTE) + after
  const buffer = Buffer.allocUnsafe(1 + length + tail.length)
  buffer[0] = 0x42
  buffer.writeInt32BE(length, 1)
  // The unnamed portal; then the statement. No format of a parameter makes all of them text.
  let offset = 5
  offset += buffer.write(`\0${name}\0`, offset, 'latin1')
  offset = buffer.writeInt16BE(formats, offset)
  if (formats > 0) for (const value of values) offset = buffer.writeInt16BE(Buffer.isBuffer(value) ? 1 : 0, offset)
  offset = buffer.writeInt16BE(values.length, offset)
  for (const value of values) {
    const bytes = value === null ? -1 : put(buffer, value, offset + 4)
    buffer.writeInt32BE(bytes, offset)
    offset += 4 + Math.max(bytes, 0)
  }
  // No format of a column: all of them are text.
  buffer.write(`\0\0${tail}`, offset, 'latin1')
  return buffer
}

/** @returns how many bytes */
const put = (buffer: Buffer, value: string | Buffer, offset: number): number =>
  typeof value === 'string' ? buffer.write(value, offset) : value.copy(buffer, offset)
