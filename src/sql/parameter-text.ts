/** How `pg` sends a Date, by its `defaults.parseInputDatesAsUTC`. */
export interface ParameterOptions {
  /** @default false: local time with its offset */
  readonly utcDates?: boolean
}

/**
 * A parameter as the text that `pg` would send for it, so that a value in a batch is stored as it is alone. A Buffer,
 * which `pg` sends as bytes, becomes the text of a `bytea`.
 *
 * @returns null for NULL
 * @throws what `JSON.stringify` or a value's own `toPostgres` throws
 */
export function parameterText(value: unknown, options: ParameterOptions = {}): string | null {
  if (value === null || value === undefined) return null
  if (typeof value !== 'object') return (value as { toString(): string }).toString()
  if (ArrayBuffer.isView(value)) return `\\x${bytesOf(value).toString('hex')}`
  if (value instanceof Date) return dateText(value, options.utcDates ?? false)
  if (Array.isArray(value)) return arrayText(value, options)
  if (hasOwnFormat(value)) {
    const formatted = value.toPostgres((part) => parameterText(part, options))
    return parameterText(formatted, options)
  }
  // What has no JSON, for instance for its toJSON(), is no value: `pg` sends NULL.
  const json: string | undefined = JSON.stringify(value)
  return json ?? null
}

interface OwnFormat {
  toPostgres(prepareValue: (value: unknown) => string | null): unknown
}

const hasOwnFormat = (value: object): value is OwnFormat =>
  'toPostgres' in value && typeof value.toPostgres === 'function'

const bytesOf = ({ buffer, byteOffset, byteLength }: ArrayBufferView): Buffer =>
  Buffer.from(buffer, byteOffset, byteLength)

/** Whether a value's text is one that only `parameterText` or `pg` knows. */
export function hasObjects(values: readonly unknown[]): boolean {
  for (const value of values) if (typeof value === 'object' && value !== null) return true
  return false
}

function arrayText(values: readonly unknown[], options: ParameterOptions): string {
  return plainArray(values) ?? anyArray(values, options)
}

/**
 * Texts of which none needs escaping, as nearly always: joined twice, which takes half of the time of a test and a new
 * text for each.
 *
 * @returns undefined for any others
 */
function plainArray(values: readonly unknown[]): string | undefined {
  for (const value of values) if (typeof value !== 'string') return undefined
  const all = values.join('')
  return values.length === 0 || all.includes('"') || all.includes('\\') ? undefined : `{"${values.join('","')}"}`
}

function anyArray(values: readonly unknown[], options: ParameterOptions): string {
  const element = (value: unknown): string => {
    if (Array.isArray(value)) return arrayText(value, options)
    const text = parameterText(value, options)
    return text === null ? 'NULL' : `"${ESCAPED.test(text) ? escaped(text) : text}"`
  }
  return `{${values.map(element).join(',')}}`
}

/** In an element of an array; nearly no text has any. */
const ESCAPED = /["\\]/

const escaped = (text: string): string => text.replaceAll('\\', '\\\\').replaceAll('"', '\\"')

/** As `pg` writes it: a column without a time zone keeps what stands before the offset. */
function dateText(date: Date, utc: boolean): string {
  const [year = NaN, month = NaN, day, hours, minutes, seconds, milliseconds] = utc ? utcParts(date) : localParts(date)
  const offset = utc ? 0 : -date.getTimezoneOffset()
  const minutesOff = Math.abs(offset)
  return [
    `${padded(year < 1 ? 1 - year : year, 4)}-${padded(month + 1)}-${padded(day)}`,
    `T${padded(hours)}:${padded(minutes)}:${padded(seconds)}.${padded(milliseconds, 3)}`,
    `${offset < 0 ? '-' : '+'}${padded(Math.floor(minutesOff / 60))}:${padded(minutesOff % 60)}`,
    year < 1 ? ' BC' : '',
  ].join('')
}

const padded = (value = NaN, length = 2): string => String(value).padStart(length, '0')

const localParts = (date: Date): number[] => [
  date.getFullYear(),
  date.getMonth(),
  date.getDate(),
  date.getHours(),
  date.getMinutes(),
  date.getSeconds(),
  date.getMilliseconds(),
]

const utcParts = (date: Date): number[] => [
  date.getUTCFullYear(),
  date.getUTCMonth(),
  date.getUTCDate(),
  date.getUTCHours(),
  date.getUTCMinutes(),
  date.getUTCSeconds(),
  date.getUTCMilliseconds(),
]
