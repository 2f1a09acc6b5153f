import { readFileSync } from 'node:fs'
import { parseArgs, type ParseArgsConfig } from 'node:util'
import type { AdoptOptions, MergeOptions } from '../adopt'
import { STEPS } from '../adopt/options'
import type { DataSource } from 'typeorm'
import { didYouMean } from './did-you-mean'
import type { RecordFormat, RecordRules } from './records'
import type { Streams } from './terminal'

/** The parsed command line. */
export type Invocation = PrintInvocation | DoctorInvocation | EntityInvocation

/** A command that only prints, and needs no DataSource. */
export type PrintInvocation =
  | { readonly kind: 'help'; readonly command: CommandName | undefined }
  | { readonly kind: 'version' }
  | { readonly kind: 'sql' }
  | { readonly kind: 'explain'; readonly error: string | undefined }

interface DoctorInvocation {
  readonly kind: 'doctor'
  readonly dataSource: string
  /** If undefined, every entity with a declaration. */
  readonly entity: string | undefined
  readonly json: boolean
}

/** A command for one entity. */
type EntityInvocation = {
  readonly dataSource: string
  /** A class or table, perhaps with a property: `Page.url`. */
  readonly entity: string
} & (
  | { readonly kind: 'recount' }
  | {
      readonly kind: 'import'
      /** A file name; `-` is standard input. */
      readonly list: string
      /** How records fill properties; if undefined, each line is a text. */
      readonly records: RecordRules | undefined
      /** Constant values for every row, by property. */
      readonly set: ReadonlyMap<string, string>
      readonly dryRun: boolean
      /** The file for the rejected lines. */
      readonly rejected: string | undefined
      /** Whether all output is lines of JSON. */
      readonly json: boolean
    }
  | {
      readonly kind: 'adopt' | 'abandon'
      readonly dryRun: boolean
      /** Whether all output is lines of JSON. */
      readonly json: boolean
      readonly options: AdoptOptions
      /** The options for the pace of every step. */
      readonly pace: Pick<
        AdoptOptions,
        'batchMilliseconds' | 'pauseMilliseconds' | 'maxLagMilliseconds' | 'maxWalBytes'
      >
      /** The merge of duplicates once the table is adopted. */
      readonly merge: Required<Pick<MergeOptions, 'keep' | 'also' | 'list'>> | undefined
    }
)

/** A command that is connected to the database. */
export interface CommandRun<Kind extends Invocation['kind']> {
  readonly dataSource: DataSource
  readonly invocation: Extract<Invocation, { kind: Kind }>
  readonly streams: Streams
  readonly signal: AbortSignal
}

export const EXIT = { done: 0, failed: 1, usage: 2, interrupted: 130 } as const

export type ExitCode = (typeof EXIT)[keyof typeof EXIT]

/** The command line is wrong. The exit code is 2. */
export class UsageError extends Error {
  override readonly name = 'UsageError'
}

const DATA_SOURCE = `
  -d, --dataSource FILE  the file that exports the DataSource, as for TypeORM's own
                         commands; your project's tsx loads TypeScript`
const ENTITY = `${DATA_SOURCE}
      --entity NAME      the class or table, and the unique text if there are several:
                         Page.url`
const JSON_EVENTS = `
      --json             print each event as a line of JSON`

/** The commands, with their help: what it is for, its operand, its options, and an example. */
const COMMANDS = {
  import: `LIST

Finds or creates a row for each line of LIST, a UTF-8 file, or - for standard input. You
can run it again at any time: rows that exist are found. Lines end with LF or CRLF and
have at most 4 MiB. Rejected lines are counted, and the first five are printed.
${ENTITY}
      --format FORMAT    LIST has records: csv (RFC 4180), tsv, or ndjson (a JSON object a
                         line)
      --map PROPERTY=COLUMN
                         the column or key that fills a property; repeatable. The first
                         record names the columns, unless each COLUMN is a number
      --set PROPERTY=VALUE
                         the value of a property in every row; repeatable
      --rejected FILE    a new file for the rejected lines, unchanged
      --dry-run          look rows up, print what would be created, and write nothing${JSON_EVENTS}

Example: npx typeorm-unique-text import -d ormconfig.ts --entity Page urls.txt
Page: docs/operations.md`,
  adopt: `

Puts the guard on a table with rows while the application runs. If it stops, run the same
command again: it continues. In an adopted table, it normalizes texts that other code has
written.
${ENTITY}
      --dry-run          print the steps with their SQL, and the stored texts that are
                         equal or that the normalizer would change, reject or make equal.
                         With --merge, if the table is adopted: what a merge would change
                         and keep. Write nothing
      --rejected WHAT    keep or delete rows whose texts the normalizer rejects
      --until STEP       stop after begin, fill, number, index, check or guard
      --batch-ms N       how long a batch lasts (default 50)
      --pause N          milliseconds between two batches (default 0), or a file that
                         contains the number and may change meanwhile: ./pause.txt
      --max-lag N        wait while a standby lags by more than N milliseconds
      --max-wal N        wait while slots or the archive retain more than N MB of WAL
      --user-triggers fire
                         let the table's own triggers run for every row
      --fake MIGRATION   then mark this pending migration as run
      --merge WHICH      then keep the oldest or newest row of equal texts, redirect all
                         references to it, and delete the others; needs --list
      --also TABLE.COLUMN
                         a reference without a foreign key that a merge also redirects;
                         repeatable. If the column refers to several tables, add which
                         rows: "file.owner_id where owner_type = 'page'"
      --list FILE        the file for what a merge deletes and redirects, as lines of JSON
                         to restore it from; an existing list is continued${JSON_EVENTS}

Example: npx typeorm-unique-text adopt -d ormconfig.ts --entity Page --dry-run
Page: docs/adopting.md`,
  abandon: `

Removes from a table what adopt has added. It changes no text.
${ENTITY}${JSON_EVENTS}

Example: npx typeorm-unique-text abandon -d ormconfig.ts --entity Page
Page: docs/adopting.md`,
  doctor: `

Reads the stored rows in batches, without blocking other sessions. It reports duplicates,
wrong hashes, texts that are not normalized, wrong names, numbers and counts, and missing
or disabled triggers, indexes and checks. It changes nothing.
${DATA_SOURCE}
      --entity NAME      examine only this class or table
      --json             print the report as JSON

Example: npx typeorm-unique-text doctor -d ormconfig.ts
Page: docs/doctor.md`,
  recount: `

Counts the rows of each scope again, for countWithin(), after rows were written while
triggers were off. The application may run meanwhile.
${DATA_SOURCE}
      --entity NAME      the class or table, and the number if there are several:
                         Comment.position

Example: npx typeorm-unique-text recount -d ormconfig.ts --entity Comment
Page: docs/backup-and-restore.md`,
  explain: `CODE

Prints what an error means and what to do.

Example: npx typeorm-unique-text explain TEXT_TAKEN
Page: docs/errors.md`,
  sql: `

Prints the functions that run in the database, for programs in other languages.

Example: npx typeorm-unique-text sql
Page: docs/sql.md`,
}

type CommandName = keyof typeof COMMANDS

const HELP = `Usage: typeorm-unique-text COMMAND [OPTIONS]

  import   finds or creates a row for each line of a list
  adopt    puts the guard on a table with rows, and can merge duplicates
  abandon  removes what adopt has added
  doctor   examines the stored rows, and changes nothing
  recount  counts the rows of each scope again
  explain  prints what an error means and what to do
  sql      prints the functions that run in the database

  -h, --help     print this help, or with a COMMAND its options and an example
  -v, --version  print the version

Exit codes: 0 success; 1 failure, rows that stay to be merged by hand, or an error that
the doctor found; 2 wrong usage; 130 stopped by Ctrl-C, 143 by SIGTERM.
`

/** The help of a command, or of all. */
export const helpOf = (command: CommandName | undefined): string =>
  command === undefined ? HELP : `Usage: typeorm-unique-text ${command} [OPTIONS] ${COMMANDS[command]}\n`

/** The options. A command takes those that its help has. */
const OPTIONS = {
  // The spelling is that of TypeORM's own commands.
  dataSource: { type: 'string', short: 'd' },
  entity: { type: 'string' },
  format: { type: 'string' },
  map: { type: 'string', multiple: true },
  set: { type: 'string', multiple: true },
  json: { type: 'boolean' },
  'dry-run': { type: 'boolean' },
  until: { type: 'string' },
  'batch-ms': { type: 'string' },
  pause: { type: 'string' },
  'max-lag': { type: 'string' },
  'max-wal': { type: 'string' },
  fake: { type: 'string' },
  merge: { type: 'string' },
  also: { type: 'string', multiple: true },
  list: { type: 'string' },
  rejected: { type: 'string' },
  'user-triggers': { type: 'string' },
  help: { type: 'boolean', short: 'h' },
  version: { type: 'boolean', short: 'v' },
} as const satisfies ParseArgsConfig['options']

/**
 * Parses the command line.
 *
 * @param args without the program's own name
 * @throws UsageError
 */
export function parseInvocation(args: readonly string[]): Invocation {
  const { values, positionals } = parse(args)
  const [given, ...operands] = positionals
  const kind = commandOf(given)
  if (values.help === true) return { kind: 'help', command: kind }
  if (values.version === true) return { kind: 'version' }
  if (kind === undefined) throw new UsageError(`Name a command: ${Object.keys(COMMANDS).join(', ')}.`)
  requireTaken(kind, values, operands)
  if (kind === 'explain') return { kind, error: operands[0] }
  if (kind === 'sql') return { kind }
  const { dataSource, entity } = values
  if (dataSource === undefined) throw new UsageError('Name the file that exports the DataSource: -d ormconfig.ts')
  if (kind === 'doctor') return { kind, dataSource, entity, json: values.json === true }
  if (entity === undefined) throw new UsageError('Name the entity: --entity Page')
  const named = { dataSource, entity }
  if (kind === 'recount') return { kind, ...named }
  if (kind === 'import') return { kind, ...named, ...listOptions(values, operands) }
  return { kind, ...named, ...adoptOptions(values) }
}

function commandOf(given: string | undefined): CommandName | undefined {
  const known = Object.keys(COMMANDS)
  const found = known.find((one): one is CommandName => one === given)
  if (found !== undefined || given === undefined) return found
  throw new UsageError(`Unknown command "${given}".${didYouMean(given, known)} The commands are ${known.join(', ')}.`)
}

type Values = ReturnType<typeof parse>['values']

/** Refuses options and operands that a command would ignore: `abandon --dry-run` would abandon. */
function requireTaken(command: CommandName, values: Values, operands: readonly string[]): void {
  const given = Object.keys(values)
  const other = given.find((name) => !COMMANDS[command].includes(` --${name} `))
  if (other !== undefined) throw new UsageError(`${command} has no option --${other}. Remove it.`)
  if (operands.length > 1 && command === 'explain') throw new UsageError('Name only one error.')
  if (operands.length > 0 && COMMANDS[command].startsWith('\n'))
    throw new UsageError(`${command} takes no argument "${operands[0]}". Remove it, or name an entity: --entity Page`)
  if (!given.includes('merge') && given.some((name) => ['also', 'list'].includes(name)))
    throw new UsageError('--also and --list are for --merge: --merge oldest --list merge.jsonl')
  if (given.includes('merge') && !given.includes('list'))
    throw new UsageError('Name the file for what the merge deletes and changes: --list merge.jsonl')
}

function listOptions(values: Values, [list, ...more]: readonly string[]) {
  const { format, map = [], set = [], 'dry-run': dryRun = false, rejected, json = false } = values
  if ((format === undefined) !== (map.length === 0))
    throw new UsageError('--format and --map go together: --format csv --map url=link')
  if (list === undefined) throw new UsageError('Name the list to import: a file, or - for standard input.')
  if (more.length > 0)
    throw new UsageError('Name only one list, or join several: cat A B | typeorm-unique-text import … -')
  const chosen = choiceOf<RecordFormat>('format', format, ['csv', 'tsv', 'ndjson'])
  const records = chosen && { format: chosen, map: propertyPairs('map', map) }
  return { list, records, set: propertyPairs('set', set), dryRun, rejected, json }
}

/** Parses the option's value for each property. */
function propertyPairs(option: 'map' | 'set', pairs: readonly string[]): ReadonlyMap<string, string> {
  const found = new Map<string, string>()
  for (const pair of pairs) {
    const [, property, value] = /^([^=]+)=(.*)$/su.exec(pair) ?? []
    if (property === undefined || value === undefined)
      throw new UsageError(`--${option} takes a property and what fills it: --${option} url=link`)
    if (found.has(property)) throw new UsageError(`--${option} names "${property}" twice. Remove one.`)
    found.set(property, value)
  }
  return found
}

function adoptOptions(values: Values) {
  const { also = [], list = '' } = values
  const keep = choiceOf('merge', values.merge, ['oldest', 'newest'])
  const batch = wholeNumber('batch-ms', values['batch-ms'])
  const wal = wholeNumber('max-wal', values['max-wal'], 'megabytes')
  const pace = {
    ...(batch === undefined ? {} : { batchMilliseconds: batch }),
    ...(values.pause === undefined ? {} : { pauseMilliseconds: pauseOf(values.pause) }),
    maxLagMilliseconds: wholeNumber('max-lag', values['max-lag']),
    maxWalBytes: wal === undefined ? undefined : wal * 1e6,
  }
  return {
    dryRun: values['dry-run'] === true,
    json: values.json === true,
    options: {
      ...pace,
      fake: values.fake,
      until: choiceOf('until', values.until, STEPS),
      rejected: choiceOf('rejected', values.rejected, ['keep', 'delete']),
      userTriggers: choiceOf('user-triggers', values['user-triggers'], ['fire']),
    },
    pace,
    merge: keep && { keep, list, also },
  }
}

const WHOLE_NUMBER = /^\d{1,7}$/

function wholeNumber(name: string, given: string | undefined, unit = 'milliseconds'): number | undefined {
  if (given === undefined) return undefined
  if (WHOLE_NUMBER.test(given)) return Number(given)
  throw new UsageError(`--${name} is a whole number of ${unit}, for instance --${name} 50.`)
}

/** A file is read before every batch, so that a person can change the pace from another terminal. */
function pauseOf(given: string): number | (() => number) {
  if (!/[./\\]/.test(given)) return wholeNumber('pause', given) ?? 0
  let pause: number | undefined
  const read = (): number => {
    try {
      const text = readFileSync(given, 'utf8').trim()
      if (WHOLE_NUMBER.test(text)) pause = Number(text)
    } catch (error) {
      if (pause === undefined)
        throw new UsageError(`--pause names a file that cannot be read: ${given}`, { cause: error })
    }
    if (pause !== undefined) return pause
    throw new UsageError(`The file of --pause holds a whole number of milliseconds, for instance 50: ${given}`)
  }
  read()
  return read
}

function choiceOf<T extends string>(name: string, given: string | undefined, all: readonly T[]): T | undefined {
  if (given === undefined) return undefined
  const found = all.find((one) => one === given)
  if (found !== undefined) return found
  throw new UsageError(`--${name} is one of: ${all.join(', ')}.${didYouMean(given, all)}`)
}

function parse(args: readonly string[]) {
  try {
    return parseArgs({ args: [...args], options: OPTIONS, allowPositionals: true, strict: true })
  } catch (error) {
    if (!(error instanceof TypeError && 'code' in error)) throw error
    const names = args.flatMap((one) => /^--([^=]+)/u.exec(one)?.[1] ?? [])
    const other = names.find((name) => !(name in OPTIONS))
    const isUnknown = error.code === 'ERR_PARSE_ARGS_UNKNOWN_OPTION' && other !== undefined
    const message = isUnknown
      ? `Unknown option --${other}.${didYouMean(other, Object.keys(OPTIONS), '--')}`
      : error.message
    throw new UsageError(message, { cause: error })
  }
}
