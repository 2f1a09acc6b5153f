import { parseArgs, type ParseArgsConfig } from 'node:util'

/** What a person asked for. */
export type Invocation =
  | { readonly kind: 'help' }
  | { readonly kind: 'version' }
  | {
      readonly kind: 'import'
      readonly dataSource: string
      readonly entity: string
      readonly property: string | undefined
      /** `-` is standard input. */
      readonly list: string
    }

/** The command line makes no sense; exit code 2. */
export class UsageError extends Error {
  override readonly name = 'UsageError'
}

export const HELP = `Usage: typeorm-unique-text import -d DATA-SOURCE --entity ENTITY [--property NAME] LIST

Finds or creates a row for every line of LIST, a UTF-8 file; - is standard input.
Lines that are refused are counted, and the first are told with their reasons.
Run it again: what is there is found, nothing is created twice.

  -d, --dataSource FILE   exports the DataSource, as for TypeORM's own commands;
                          TypeScript is loaded by the tsx of your project
      --entity NAME       name of its class or of its table
      --property NAME     the unique text; may be left out if the entity has one
      --help              show this and exit
      --version           show the version and exit

Exit code: 0 done, 1 failure, 2 wrong usage, 130 stopped by Ctrl-C.
`

const OPTIONS = {
  // As TypeORM spells it.
  dataSource: { type: 'string', short: 'd' },
  entity: { type: 'string' },
  property: { type: 'string' },
  help: { type: 'boolean', short: 'h' },
  version: { type: 'boolean', short: 'v' },
} as const satisfies ParseArgsConfig['options']

/**
 * @param args without the program's own name
 * @throws UsageError
 */
export function parseInvocation(args: readonly string[]): Invocation {
  const { values, positionals } = parse(args)
  if (values.help === true) return { kind: 'help' }
  if (values.version === true) return { kind: 'version' }
  const [command, list, ...more] = positionals
  if (command === undefined) throw new UsageError('Say what to do: import.')
  if (command !== 'import') throw new UsageError(`There is no command "${command}"; there is import.`)
  const { dataSource, entity, property } = values
  if (dataSource === undefined) throw new UsageError('Say where the DataSource is: -d ormconfig.ts')
  if (entity === undefined) throw new UsageError('Say which entity: --entity Page')
  if (list === undefined) throw new UsageError('Say which list to import: a file, or - for standard input.')
  if (more.length > 0)
    throw new UsageError('Name one list only, or join them: cat A B | typeorm-unique-text import … -')
  return { kind: 'import', dataSource, entity, property, list }
}

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
