import { createRequire } from 'node:module'
import path from 'node:path'
import { clearLine, cursorTo } from 'node:readline'
import { pathToFileURL } from 'node:url'
import { type DataSource, InstanceChecker } from 'typeorm'
import { serverError } from '../core'
import { UniqueTextError } from '../errors'

/** A terminal, or anything else that text can be written to. */
export type Output = NodeJS.WritableStream & { readonly isTTY?: boolean; readonly columns?: number }

/** Where a command writes. */
export interface Streams {
  /** Results. */
  readonly stdout: Output
  /** Progress and errors. */
  readonly stderr: Output
}

/** Ignores that the reader has gone (`… | head`): that must neither stop the work nor print a stack trace. */
export function outliveReaders({ stdout, stderr }: Streams): void {
  for (const stream of [stdout, stderr]) {
    stream.on('error', (error: NodeJS.ErrnoException) => {
      if (error.code === 'EPIPE') return
      // A full disk, for instance: the rows are stored, but the result cannot be printed.
      if (stream !== stderr) stderr.write(`Cannot write the report: ${error.message}\n`)
      process.exitCode = 1
      process.exit()
    })
  }
}

/** Control characters, and those that change the direction or the line of what follows. */
// oxlint-disable-next-line no-control-regex
const UNPRINTABLE = /[\u0000-\u001f\u007f-\u009f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]/g

/**
 * Text from elsewhere, such as a stored URL or a server's message, as one line that cannot command the terminal.
 *
 * @example printable('a\x1b[2Jb') // 'a\\u001b[2Jb'
 */
export function printable(text: string): string {
  return text.replaceAll(UNPRINTABLE, (character) => {
    return `\\u${character.charCodeAt(0).toString(16).padStart(4, '0')}`
  })
}

/** The same for text of several lines. */
export const printableLines = (text: string): string => text.split('\n').map(printable).join('\n')

/** Text whose names, keys and values come from elsewhere, a line each. */
export const linesOf = (lines: readonly string[]): string => lines.map((line) => `${printable(line)}\n`).join('')

/** Writes what happened as a line of JSON, with the time. */
export function writeEvent(output: Output, event: object): void {
  output.write(`${JSON.stringify({ time: new Date().toISOString(), ...event })}\n`)
}

/** How far a command has come. */
interface ProgressState {
  readonly lines: number
  /** What is counted, in the plural. */
  readonly unit: string
  readonly seconds: number
  /** 0 to 1; undefined if the length of the list is not known. */
  readonly fraction: number | undefined
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
 * @param now in milliseconds. @default performance.now
 * @param unit what is counted, in the plural. @default 'lines'
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
      const state = { lines, unit, fraction, seconds: (at - started) / 1_000 }
      if (!terminal) {
        output.write(`${formatState(state)}\n`)
        return
      }
      // The last column stays free: some terminals wrap as soon as it is filled.
      const line = `${formatBar(fraction)}${formatState(state)}`.slice(0, (output.columns ?? COLUMNS_DEFAULT) - 1)
      clear()
      output.write(line)
    },
    end: () => {
      if (terminal) clear()
    },
  }
}

function formatBar(fraction: number | undefined): string {
  if (fraction === undefined) return ''
  const done = Math.round(fraction * BAR_WIDTH)
  return `[${'#'.repeat(done)}${'-'.repeat(BAR_WIDTH - done)}] `
}

/** One line without a line ending, for example `43 %  430,000 lines  41,200 per second`. */
function formatState({ lines, unit, seconds, fraction }: ProgressState): string {
  const rate = seconds > 0 ? Math.round(lines / seconds) : 0
  const percent = fraction === undefined ? [] : [`${Math.floor(fraction * 100)} %`]
  return [...percent, `${lines.toLocaleString('en-US')} ${unit}`, `${rate.toLocaleString('en-US')} per second`].join(
    '  ',
  )
}

/** The file does not export a DataSource that can be used. The message says what to do. */
export class DataSourceFileError extends Error {
  override readonly name = 'DataSourceFileError'
}

/**
 * Loads the DataSource that a file exports, like TypeORM's own commands: as its default or under a name, perhaps as a
 * promise, from an ES module or CommonJS. A TypeScript file is loaded by the `tsx` installed beside it, if there is one.
 *
 * @param file relative to the working directory
 * @throws DataSourceFileError
 */
export async function loadDataSource(file: string): Promise<DataSource> {
  const absolute = path.resolve(file)
  const found = new Set<DataSource>()
  for (const value of await exportsOf(absolute, file)) {
    const dataSource = await value
    if (InstanceChecker.isDataSource(dataSource)) found.add(dataSource)
  }
  const [only] = found
  if (only && found.size === 1) return withConnectionString(only, file)
  throw new DataSourceFileError(
    only
      ? `"${file}" exports several DataSources. Export only one.`
      : `"${file}" exports no DataSource. Export one: export default new DataSource({ … }).`,
  )
}

/** A word in place of a URL would be looked up as the host "base", by `pg`. The value may hold a password. */
function withConnectionString(dataSource: DataSource, file: string): DataSource {
  const { options } = dataSource
  if (options.type !== 'postgres' || typeof options.url !== 'string' || options.url === '') return dataSource
  if (/^(?:postgres|postgresql|socket):|^\//i.test(options.url)) return dataSource
  throw new DataSourceFileError(
    `The "url" of the DataSource in "${file}" is not a connection string. ` +
      'Expected postgres://user:password@host:5432/database; is DATABASE_URL set right?',
  )
}

/** All that a file exports; a TypeScript file is loaded as above. @throws DataSourceFileError */
export async function loadModule(file: string): Promise<readonly unknown[]> {
  return await exportsOf(path.resolve(file), file)
}

/** What a file exports, where only one of its values is of this kind. */
export async function onlyExport<Value>(
  file: string,
  isOfKind: (value: unknown) => value is Value,
): Promise<Value | undefined> {
  const found = new Set((await loadModule(file)).filter(isOfKind))
  return found.size === 1 ? [...found][0] : undefined
}

/** For CommonJS the namespace's default is `module.exports`, whose own `default` is TypeScript's default export. */
async function exportsOf(absolute: string, file: string): Promise<unknown[]> {
  const module = await load(absolute, file)
  const inner = module['default']
  const isModule = typeof inner === 'object' && inner !== null && !InstanceChecker.isDataSource(inner)
  return [...Object.values(module), ...(isModule ? Object.values(inner) : [])]
}

async function load(absolute: string, file: string): Promise<Record<string, unknown>> {
  const typeScript = /\.[cm]?ts$/.test(absolute)
  const loader = typeScript && (await registerTsx(absolute))
  try {
    return (await import(pathToFileURL(absolute).href)) as Record<string, unknown>
  } catch (error) {
    const message = error instanceof Error ? error.message : String(error)
    if (isMissingFile(error, absolute)) throw new DataSourceFileError(`There is no file "${file}".`, { cause: error })
    const advice = typeScript && !loader && NEEDS_TSX.has(codeOf(error)) ? `\n${TSX_ADVICE}` : ''
    throw new DataSourceFileError(`"${file}" cannot be loaded: ${message}${advice}`, { cause: error })
  }
}

const TSX_ADVICE = 'Node.js cannot load this TypeScript by itself: npm install --save-dev tsx, and run this again.'

/** What Node.js 20 says, and later versions, which strip types but know no decorators or imports without extension. */
const NEEDS_TSX: ReadonlySet<unknown> = new Set([
  'ERR_UNKNOWN_FILE_EXTENSION',
  'ERR_UNSUPPORTED_TYPESCRIPT_SYNTAX',
  'ERR_INVALID_TYPESCRIPT_SYNTAX',
  'ERR_UNSUPPORTED_DIR_IMPORT',
  'ERR_MODULE_NOT_FOUND',
  'MODULE_NOT_FOUND',
  'SyntaxError',
])

function codeOf(error: unknown): unknown {
  const { code, name } = error as { code?: unknown; name?: unknown }
  return code ?? name
}

/** Does what `node --import tsx` does, and nothing if that was given: a module is loaded only once. */
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

function isMissingFile(error: unknown, absolute: string): boolean {
  const { code, url } = error as { code?: unknown; url?: unknown }
  return code === 'ERR_MODULE_NOT_FOUND' && (url === undefined || url === pathToFileURL(absolute).href)
}

/**
 * Why a line was refused, as one clause. From the database's own errors it takes only the code and the constraint or
 * column: their messages may quote the text ('invalid input syntax for …: "…"').
 */
export function refusalReason(error: unknown): string {
  const refused = serverError(error)
  if (refused) {
    return `the database refuses it (${codeAndName(refused)})`
  }
  if (!(error instanceof Error)) return 'it is refused'
  if (!isOurs(error)) return `the declaration's "parse" threw a ${error.name} for it`
  const { reason, offset } = error as Partial<Record<'reason' | 'offset', unknown>>
  if (typeof reason !== 'string') return error.message
  return typeof offset === 'number' ? `${reason} (code point ${offset})` : reason
}

/** Recognized by its code, since a declaration may come from another copy of this package. */
function isOurs(error: Error): error is UniqueTextError {
  return error instanceof UniqueTextError || ('code' in error && error.code === 'TEXT_REJECTED')
}

/**
 * Classes of SQLSTATE whose messages tell of connections, names, privileges and limits, never of a row's values. A user's
 * trigger may put the text in its message, and a data exception quotes it.
 */
const TELLS_NO_VALUES = /^(?:0[8A]|25|28|3D|3F|40|42|5[3-8])/

/** An error that ends the command, in its own words where those cannot hold a text; printable, perhaps several lines. */
export function describeError(error: unknown): string {
  if (!(error instanceof Error)) return printableLines(String(error))
  // A connection that was tried over IPv4 and IPv6: the outer error has no words.
  if (error instanceof AggregateError && error.message === '') {
    return [...new Set(error.errors.map(describeError))].join('; ')
  }
  const refused = serverError(error)
  if (!refused) return printableLines(error.message === '' ? error.name : error.message)
  const message = TELLS_NO_VALUES.test(refused.code) ? printable(error.message) : 'the database refuses a statement'
  return `${message} (${codeAndName(refused)})`
}

function codeAndName({ code, constraint, column }: NonNullable<ReturnType<typeof serverError>>): string {
  const name = constraint ?? column
  return name === undefined ? `SQLSTATE ${code}` : `SQLSTATE ${code}, "${printable(name)}"`
}
