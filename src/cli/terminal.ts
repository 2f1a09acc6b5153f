import { createRequire } from 'node:module'
import path from 'node:path'
import { clearLine, cursorTo } from 'node:readline'
import { pathToFileURL } from 'node:url'
import { type DataSource, InstanceChecker } from 'typeorm'
import { serverError } from '../core'
import { UniqueTextError } from '../errors'

/** A terminal, or another stream for text. */
export type Output = NodeJS.WritableStream & { readonly isTTY?: boolean; readonly columns?: number }

/** Where a command writes. */
export interface Streams {
  /** Results. */
  readonly stdout: Output
  /** Progress and errors. */
  readonly stderr: Output
}

/** Ignores the end of a reader (`… | head`), which must neither stop the work nor print a stack trace. */
export function outliveReaders({ stdout, stderr }: Streams): void {
  for (const stream of [stdout, stderr]) {
    stream.on('error', (error: NodeJS.ErrnoException) => {
      if (error.code === 'EPIPE') return
      // On a full disk, for instance, the rows are stored, but the result cannot be printed.
      if (stream !== stderr) stderr.write(`Cannot write the report: ${error.message}\n`)
      process.exitCode = 1
      process.exit()
    })
  }
}

/** Control characters, and characters that change the direction or the line of the following text. */
// oxlint-disable-next-line no-control-regex
const UNPRINTABLE = /[\u0000-\u001f\u007f-\u009f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]/g

/**
 * Returns foreign text, such as a stored URL or a server's message, as one line that cannot control the terminal.
 *
 * @example printable('a\x1b[2Jb') // 'a\\u001b[2Jb'
 */
export function printable(text: string): string {
  return text.replaceAll(UNPRINTABLE, (character) => {
    return `\\u${character.charCodeAt(0).toString(16).padStart(4, '0')}`
  })
}

/** Does the same for text of several lines. */
export const printableLines = (text: string): string => text.split('\n').map(printable).join('\n')

/** Joins lines of text whose names, keys and values may hold any characters. */
export const linesOf = (lines: readonly string[]): string => lines.map((line) => `${printable(line)}\n`).join('')

export const number = (value: number): string => value.toLocaleString('en-US')

/** Writes an event as a line of JSON, with the time. */
export function writeEvent(output: Output, event: object): void {
  output.write(`${JSON.stringify({ time: new Date().toISOString(), ...event })}\n`)
}

interface ProgressDisplay {
  update(lines: number, fraction: number | undefined): void
  /** Removes the bar. */
  end(): void
}

const REDRAW_MILLISECONDS = 100
const PLAIN_MILLISECONDS = 5_000
const COLUMNS_DEFAULT = 80
const BAR_WIDTH = 24

/**
 * Opens a progress display: a bar redrawn in place on a terminal, a plain line every five seconds elsewhere.
 *
 * @param now returns the time in milliseconds. @default performance.now
 * @param unit the noun for the counted items, in the plural. @default 'lines'
 */
export function openProgress(
  output: Output,
  now: () => number = () => performance.now(),
  unit = 'lines',
): ProgressDisplay {
  const started = now()
  const terminal = output.isTTY === true
  const pause = terminal ? REDRAW_MILLISECONDS : PLAIN_MILLISECONDS
  let last = terminal ? Number.NEGATIVE_INFINITY : started
  const clear = (): void => {
    cursorTo(output, 0)
    clearLine(output, 1)
  }
  return {
    update: (lines, fraction) => {
      const at = now()
      if (at - last < pause) return
      last = at
      const rate = at > started ? Math.round(lines / ((at - started) / 1_000)) : 0
      const percent = fraction === undefined ? '' : `${Math.floor(fraction * 100)} %  `
      const line = `${percent}${number(lines)} ${unit}  ${number(rate)} per second`
      if (!terminal) {
        output.write(`${line}\n`)
        return
      }
      const done = Math.round((fraction ?? 0) * BAR_WIDTH)
      const bar = fraction === undefined ? '' : `[${'#'.repeat(done)}${'-'.repeat(BAR_WIDTH - done)}] `
      clear()
      // The last column remains free, because some terminals wrap as soon as it is filled.
      output.write(`${bar}${line}`.slice(0, (output.columns ?? COLUMNS_DEFAULT) - 1))
    },
    end: () => {
      if (terminal) clear()
    },
  }
}

/** The file does not export a DataSource that can be used. The message ends with the next action. */
export class DataSourceFileError extends Error {
  override readonly name = 'DataSourceFileError'
}

/**
 * Loads the DataSource that a file exports, like TypeORM's own commands: as its default or under a name, perhaps as a
 * promise, from an ES module or CommonJS. If `tsx` is installed beside a TypeScript file, it loads that file.
 *
 * @param file relative to the working directory
 * @throws DataSourceFileError
 */
export async function loadDataSource(file: string): Promise<DataSource> {
  const found = new Set<DataSource>()
  for (const value of await exportsOf(file)) {
    const dataSource = await value
    if (InstanceChecker.isDataSource(dataSource)) found.add(dataSource)
  }
  const [only, ...others] = found
  if (!only) {
    throw new DataSourceFileError(`"${file}" exports no DataSource. Export one: export default new DataSource({ … }).`)
  }
  if (others.length > 0) throw new DataSourceFileError(`"${file}" exports several DataSources. Export only one.`)
  const { type, url } = only.options as { readonly type: string; readonly url?: unknown }
  // `pg` would resolve any other word as the host "base". The value may hold a password, so no message shows it.
  if (type === 'postgres' && typeof url === 'string' && !/^(?:postgres|postgresql|socket):|^\/|^$/i.test(url)) {
    throw new DataSourceFileError(
      `The "url" of the DataSource in "${file}" is not a connection string. ` +
        'Expected postgres://user:password@host:5432/database; is DATABASE_URL set right?',
    )
  }
  return only
}

/** Returns all exports of a file. @throws DataSourceFileError */
async function exportsOf(file: string): Promise<unknown[]> {
  const absolute = path.resolve(file)
  const { href } = pathToFileURL(absolute)
  const lacksTsx = /\.[cm]?ts$/.test(absolute) && !(await registerTsx(absolute))
  const module = (await import(href).catch((error: unknown) => {
    const { code, name, url = href } = error as Record<'code' | 'name' | 'url', unknown>
    const isMissing = code === 'ERR_MODULE_NOT_FOUND' && url === href
    if (isMissing) throw new DataSourceFileError(`There is no file "${file}".`, { cause: error })
    const message = error instanceof Error ? error.message : String(error)
    const advice = lacksTsx && NEEDS_TSX.has(code ?? name) ? `\n${TSX_ADVICE}` : ''
    throw new DataSourceFileError(`"${file}" cannot be loaded: ${message}${advice}`, { cause: error })
  })) as Record<string, unknown>
  // For CommonJS, the namespace's default is `module.exports`, whose own `default` is TypeScript's default export.
  const inner = module['default']
  const isModule = typeof inner === 'object' && inner !== null && !InstanceChecker.isDataSource(inner)
  return [...Object.values(module), ...(isModule ? Object.values(inner) : [])]
}

const TSX_ADVICE = 'Node.js cannot load this TypeScript by itself: npm install --save-dev tsx, and run this again.'

/** Codes of Node.js 20, and of later versions, which strip types but support no decorators or extensionless imports. */
const NEEDS_TSX: ReadonlySet<unknown> = new Set([
  'ERR_UNKNOWN_FILE_EXTENSION',
  'ERR_UNSUPPORTED_TYPESCRIPT_SYNTAX',
  'ERR_INVALID_TYPESCRIPT_SYNTAX',
  'ERR_UNSUPPORTED_DIR_IMPORT',
  'ERR_MODULE_NOT_FOUND',
  'MODULE_NOT_FOUND',
  'SyntaxError',
])

/** Does the same as `node --import tsx`. If that was given, it does nothing, because a module is loaded only once. */
async function registerTsx(absolute: string): Promise<boolean> {
  let loader: string
  try {
    loader = createRequire(absolute).resolve('tsx')
  } catch {
    return false
  }
  await import(pathToFileURL(loader).href)
  return true
}

/**
 * Returns why a line was rejected, as one clause. From the database's own errors it takes only the code and the
 * constraint or column, because their messages may quote the text ('invalid input syntax for …: "…"').
 */
export function refusalReason(error: unknown): string {
  const refused = serverError(error)
  if (refused) return `the database rejects it (${codeAndName(refused)})`
  if (!(error instanceof Error)) return 'it is rejected'
  // The code is checked too, because a declaration may belong to another copy of this package.
  const isOurs = error instanceof UniqueTextError || ('code' in error && error.code === 'TEXT_REJECTED')
  if (!isOurs) return `the declaration's "parse" threw a ${error.name} for it`
  const { reason, offset } = error as Partial<Record<'reason' | 'offset', unknown>>
  if (typeof reason !== 'string') return error.message
  return typeof offset === 'number' ? `${reason} (code point ${offset})` : reason
}

/**
 * Classes of SQLSTATE whose messages hold connections, names, privileges and limits, never a row's values. A user's
 * trigger may put the text in its message, and a data exception quotes it.
 */
const TELLS_NO_VALUES = /^(?:0[8A]|25|28|3D|3F|40|42|5[3-8])/

/** Describes an error that ends the command, in printable lines. Shows its message only if that cannot hold a text. */
export function describeError(error: unknown): string {
  if (!(error instanceof Error)) return printableLines(String(error))
  // If a connection was tried over IPv4 and IPv6, the outer error has no message.
  if (error instanceof AggregateError && error.message === '') {
    return [...new Set(error.errors.map(describeError))].join('; ')
  }
  const refused = serverError(error)
  if (!refused) return printableLines(error.message === '' ? error.name : error.message)
  const message = TELLS_NO_VALUES.test(refused.code) ? printable(error.message) : 'the database rejects a statement'
  return `${message} (${codeAndName(refused)})`
}

function codeAndName({ code, constraint, column }: NonNullable<ReturnType<typeof serverError>>): string {
  const name = constraint ?? column
  return name === undefined ? `SQLSTATE ${code}` : `SQLSTATE ${code}, "${printable(name)}"`
}
