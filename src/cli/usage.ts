import { parseArgs, type ParseArgsConfig } from 'node:util'

/** What the command line asks for. */
export type Invocation =
  | { readonly kind: 'help' }
  | { readonly kind: 'version' }
  | {
      readonly kind: 'import'
      readonly dataSource: string
      readonly entity: string
      readonly property: string | undefined
      /** A file name; `-` is standard input. */
      readonly list: string
    }
  | {
      readonly kind: 'doctor'
      readonly dataSource: string
      /** undefined: every entity that declares anything. */
      readonly entity: string | undefined
      readonly json: boolean
    }

/** The command line is wrong; exit code 2. */
export class UsageError extends Error {
  override readonly name = 'UsageError'
}

export const HELP = `Usage: typeorm-unique-text import -d DATA-SOURCE --entity NAME [--property NAME] LIST
       typeorm-unique-text doctor -d DATA-SOURCE [--entity NAME] [--json]

import finds or creates a row for each line of LIST: a UTF-8 file, or - for standard
input. Lines end with LF or CRLF and have at most 4 MiB.
Lines that are refused are counted; the first five are reported with the reason.
You can run it again at any time: rows that exist are found, and none is created twice.

doctor looks at the stored rows, in batches and without a lock that anybody waits for:
texts that stand twice, hashes, chains, names and counts that are wrong, texts that
are not normalized, and what the database lacks. It changes nothing.

  -d, --dataSource FILE   the file that exports the DataSource, as for TypeORM's own
                          commands; TypeScript is loaded with your project's tsx
      --entity NAME       the entity's class name or table name
      --property NAME     the unique text; needed only if the entity has several
      --json              print the report of the doctor as JSON (docs/doctor.md)
  -h, --help              show this help and exit
  -v, --version           show the version and exit

Exit codes: 0 success, 1 failure, or the doctor found an error, 2 wrong usage,
130 stopped by Ctrl-C.
`

const OPTIONS = {
  // Spelled as in TypeORM's own commands.
  dataSource: { type: 'string', short: 'd' },
  entity: { type: 'string' },
  property: { type: 'string' },
  json: { type: 'boolean' },
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
  if (values.help === true) return { kind: 'help' }
  if (values.version === true) return { kind: 'version' }
  const [command, ...operands] = positionals
  if (command === undefined) throw new UsageError('Name a command: import or doctor.')
  if (command === 'import') return importOf(values, operands)
  if (command === 'doctor') return doctorOf(values, operands)
  throw new UsageError(`Unknown command "${command}". The commands are import and doctor.`)
}

type Values = ReturnType<typeof parseStrictly>['values']

function importOf({ dataSource, entity, property, json }: Values, [list, ...more]: readonly string[]): Invocation {
  if (dataSource === undefined) throw new UsageError(NO_DATA_SOURCE)
  if (entity === undefined) throw new UsageError('Name the entity: --entity Page')
  if (json === true) throw new UsageError('Only doctor has the option --json. Remove it.')
  if (list === undefined) throw new UsageError('Name the list to import: a file, or - for standard input.')
  if (more.length > 0)
    throw new UsageError('Name only one list, or join several: cat A B | typeorm-unique-text import … -')
  return { kind: 'import', dataSource, entity, property, list }
}

function doctorOf({ dataSource, entity, property, json }: Values, operands: readonly string[]): Invocation {
  if (dataSource === undefined) throw new UsageError(NO_DATA_SOURCE)
  if (property !== undefined) throw new UsageError('doctor looks at all of an entity. Remove --property.')
  if (operands.length > 0) throw new UsageError('doctor takes no list. Name an entity by --entity.')
  return { kind: 'doctor', dataSource, entity, json: json === true }
}

const NO_DATA_SOURCE = 'Name the file that exports the DataSource: -d ormconfig.ts'

function parse(args: readonly string[]): ReturnType<typeof parseStrictly> {
  try {
    return parseStrictly(args)
  } catch (error) {
    if (error instanceof TypeError && 'code' in error) throw new UsageError(error.message, { cause: error })
    throw error
  }
}

const parseStrictly = (args: readonly string[]) =>
  parseArgs({ args: [...args], options: OPTIONS, allowPositionals: true, strict: true })
