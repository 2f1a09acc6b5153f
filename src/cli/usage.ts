import { readFileSync } from 'node:fs'
import { parseArgs, type ParseArgsConfig } from 'node:util'
import type { AdoptOptions, MergeOptions } from '../adopt'
import { STEPS } from '../adopt/options'
import type { DataSource } from 'typeorm'
import type { RecordFormat, RecordRules } from './records'
import type { Streams } from './terminal'

/** The parsed command line. */
export type Invocation = PrintInvocation | DoctorInvocation | EntityInvocation

/** A command that only prints, and needs no DataSource. */
export type PrintInvocation =
  | { readonly kind: 'help' }
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
  readonly entity: string
  readonly property: string | undefined
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
      /** The file for the refused lines. */
      readonly refused: string | undefined
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
        'property' | 'batchMilliseconds' | 'pauseMilliseconds' | 'maxLagMilliseconds' | 'maxWalBytes'
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

export const HELP = `Usage: typeorm-unique-text import -d DATA-SOURCE --entity NAME [--property NAME]
                                  [--format FORMAT --map PROPERTY=COLUMN …]
                                  [--set PROPERTY=VALUE …] [--dry-run]
                                  [--refused FILE] [--json] LIST
       typeorm-unique-text doctor -d DATA-SOURCE [--entity NAME] [--json]
       typeorm-unique-text recount -d DATA-SOURCE --entity NAME [--property NAME]
       typeorm-unique-text adopt|abandon -d DATA-SOURCE --entity NAME
                           [--property NAME] [OPTIONS of adopt]
       typeorm-unique-text explain CODE
       typeorm-unique-text sql

import finds or creates a row for each line of LIST: a UTF-8 file, or - for standard
input. Lines end with LF or CRLF and have at most 4 MiB.
With --format each record is a row, whose properties --map fills; --set fills one of
every row.
Lines that are refused are counted; the first five are reported with the reason, and
--refused FILE writes all of them to FILE as they came, to be mended and imported.
With --dry-run it looks rows up and says what it would do, and writes no row.
You can run it again at any time: rows that exist are found, and none is created twice.

doctor examines the stored rows, in batches and without blocking anybody: duplicate
texts, wrong hashes, chains, names and counts, texts that are not normalized, and
missing or disabled triggers, indexes and checks. It changes nothing.

recount counts the rows of every scope anew, for countWithin(): after rows were written
while triggers were off. The application may run (docs/backup-and-restore.md).

explain prints what an error means and what to do: TEXT_TAKEN, UT002.

sql prints the functions that run in the database, for other programs (docs/sql.md).

adopt brings a table with rows under the guard while the application runs. If it stops,
the same command continues. Of an adopted table, it normalizes what other code has
written. abandon removes everything again and changes no text (docs/adopting.md).

      --dry-run             print the steps, their SQL, and which stored texts are equal,
                            or which the normalizer would change, refuse or make equal.
                            Change nothing. Of an adopted table with --merge: do each
                            batch, undo it, and print what it would change and leave
      --until STEP          stop after begin, fill, number, index, check or guard
      --batch-ms N          how long a batch lasts (default 50)
      --pause N             milliseconds between two batches (default 0), or a file that
                            holds the number and may change meanwhile: ./pause.txt
      --max-lag N           wait while a standby is more than N milliseconds behind
      --max-wal N           wait while slots or the archive need more than N MB of WAL
      --fake MIGRATION      then mark this pending migration as run
      --merge WHICH         then keep the oldest or newest row of equal texts, turn all
                            references to it, and delete the others; needs --list
      --also TABLE.COLUMN   a reference without a foreign key to turn too; repeatable. Of
                            a column that refers to several tables also which rows:
                            "file.owner_id where owner_type = 'page'"
      --list FILE           the file that keeps the rows that a merge deletes, and the
                            references that it turns, as lines of JSON to restore them
                            from; the list of an earlier merge is continued
      --refused WHAT        keep or delete rows whose texts the normalizer refuses
      --user-triggers fire  let the table's own triggers run for every row

  -d, --dataSource FILE   the file that exports the DataSource, as for TypeORM's own
                          commands; TypeScript is loaded with your project's tsx
      --entity NAME       the entity's class name or table name
      --property NAME     the unique text, or for recount the number; needed only if the
                          entity has several
      --format FORMAT     LIST is csv (RFC 4180), tsv, or ndjson (a JSON object a line)
      --map PROPERTY=COLUMN
                          the column or key that fills a property; repeatable. The first
                          record names the columns, unless each COLUMN is a number
      --set PROPERTY=VALUE
                          the value of a property in every row; repeatable
      --json              print the report of the doctor as JSON (docs/doctor.md); import,
                          adopt and abandon print each event as a line of JSON
  -h, --help              show this help and exit
  -v, --version           show the version and exit

Exit codes: 0 success, 1 failure, rows that are left, or an error that the doctor found,
2 wrong usage, 130 stopped by Ctrl-C, 143 by SIGTERM.
`

const COMMANDS = ['import', 'doctor', 'recount', 'adopt', 'abandon'] as const

type CommandName = (typeof COMMANDS)[number]

type Option = NonNullable<ParseArgsConfig['options']>[string] & {
  /** The commands that take it. @default all */
  readonly of?: readonly CommandName[]
}

/** The options, and the commands that take them. */
const OPTIONS = {
  // The spelling is that of TypeORM's own commands.
  dataSource: { type: 'string', short: 'd' },
  entity: { type: 'string' },
  property: { type: 'string', of: ['import', 'recount', 'adopt', 'abandon'] },
  format: { type: 'string', of: ['import'] },
  map: { type: 'string', multiple: true, of: ['import'] },
  set: { type: 'string', multiple: true, of: ['import'] },
  json: { type: 'boolean', of: ['import', 'doctor', 'adopt', 'abandon'] },
  'dry-run': { type: 'boolean', of: ['import', 'adopt'] },
  until: { type: 'string', of: ['adopt'] },
  'batch-ms': { type: 'string', of: ['adopt'] },
  pause: { type: 'string', of: ['adopt'] },
  'max-lag': { type: 'string', of: ['adopt'] },
  'max-wal': { type: 'string', of: ['adopt'] },
  fake: { type: 'string', of: ['adopt'] },
  merge: { type: 'string', of: ['adopt'] },
  also: { type: 'string', multiple: true, of: ['adopt'] },
  list: { type: 'string', of: ['adopt'] },
  refused: { type: 'string', of: ['import', 'adopt'] },
  'user-triggers': { type: 'string', of: ['adopt'] },
  help: { type: 'boolean', short: 'h' },
  version: { type: 'boolean', short: 'v' },
} as const satisfies Readonly<Record<string, Option>>

/**
 * Parses the command line.
 *
 * @param args without the program's own name
 * @throws UsageError
 */
export function parseInvocation(args: readonly string[]): Invocation {
  const { values, positionals } = parse(args)
  if (values.help === true) return { kind: 'help' }
  if (values.version === true) return { kind: 'version' }
  const [command, ...operands] = positionals
  const known = [...COMMANDS, 'explain', 'sql'].join(', ')
  if (command === undefined) throw new UsageError(`Name a command: ${known}.`)
  if (command === 'explain' || command === 'sql') return printing(command, values, operands)
  const kind = COMMANDS.find((one) => one === command)
  if (kind === undefined) throw new UsageError(`Unknown command "${command}". The commands are ${known}.`)
  requireTaken(kind, values, operands)
  const { dataSource, entity, property } = values
  if (dataSource === undefined) throw new UsageError('Name the file that exports the DataSource: -d ormconfig.ts')
  if (kind === 'doctor') return { kind, dataSource, entity, json: values.json === true }
  if (entity === undefined) throw new UsageError('Name the entity: --entity Page')
  const named = { dataSource, entity, property }
  if (kind === 'recount') return { kind, ...named }
  if (kind === 'import') return { kind, ...named, ...listOptions(values, operands) }
  return { kind, ...named, ...adoptOptions(values) }
}

type Values = ReturnType<typeof parse>['values']

/** Parses a command that needs no DataSource. It refuses what it would ignore: `sql --entity` would print all. */
function printing(command: 'explain' | 'sql', values: Values, operands: readonly string[]): PrintInvocation {
  const [option] = Object.keys(values)
  if (option !== undefined) throw new UsageError(`${command} has no option --${option}. Remove it.`)
  const [error] = operands
  if (command === 'explain' && operands.length <= 1) return { kind: command, error }
  if (command === 'sql' && error === undefined) return { kind: command }
  throw new UsageError(command === 'sql' ? 'sql takes no argument. Remove it.' : 'Name only one error.')
}

/** Refuses options that a command would ignore: `abandon --dry-run` would abandon. */
function requireTaken(command: CommandName, values: Values, operands: readonly string[]): void {
  const given = Object.keys(values)
  const options: Readonly<Record<string, Option>> = OPTIONS
  const other = given.find((name) => options[name]?.of?.includes(command) === false)
  if (other !== undefined) throw new UsageError(`${command} has no option --${other}. Remove it.`)
  if (operands.length > 0 && command !== 'import')
    throw new UsageError(`${command} takes no list. Name an entity by --entity.`)
  if (!given.includes('merge') && given.some((name) => ['also', 'list'].includes(name)))
    throw new UsageError('--also and --list are for --merge: --merge oldest --list merge.jsonl')
  if (given.includes('merge') && !given.includes('list'))
    throw new UsageError('Name the file that keeps what the merge deletes and changes: --list merge.jsonl')
}

function listOptions(values: Values, [list, ...more]: readonly string[]) {
  const { format, map = [], set = [], 'dry-run': dryRun = false, refused, json = false } = values
  if ((format === undefined) !== (map.length === 0))
    throw new UsageError('--format and --map go together: --format csv --map url=link')
  if (list === undefined) throw new UsageError('Name the list to import: a file, or - for standard input.')
  if (more.length > 0)
    throw new UsageError('Name only one list, or join several: cat A B | typeorm-unique-text import … -')
  const chosen = choiceOf<RecordFormat>('format', format, ['csv', 'tsv', 'ndjson'])
  const records = chosen && { format: chosen, map: propertyPairs('map', map) }
  return { list, records, set: propertyPairs('set', set), dryRun, refused, json }
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
    property: values.property,
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
      refused: choiceOf('refused', values.refused, ['keep', 'delete']),
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
  throw new UsageError(`--${name} is one of: ${all.join(', ')}.`)
}

function parse(args: readonly string[]) {
  try {
    return parseArgs({ args: [...args], options: OPTIONS, allowPositionals: true, strict: true })
  } catch (error) {
    if (error instanceof TypeError && 'code' in error) throw new UsageError(error.message, { cause: error })
    throw error
  }
}
