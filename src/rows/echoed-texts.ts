import type { DataSource } from 'typeorm'
import type { ColumnMetadata, Declaration, ReadyTable } from '../typeorm/registry'

/** The part of `pg-types` that `pg` reads values with. */
interface TypeParsers {
  getTypeParser(oid: number, format: string): unknown
}

/** What a column must be for equal texts to be the same bytes, as `format_type` has it, with the OIDs of the types. */
const PLAIN = /^(?:text|character varying(?:\(\d+\))?)$/
const TEXT = 25
const VARCHAR = 1043

/**
 * Whether the driver is known to give texts as the server sends them: it is `pg`, and nobody has set a parser of their own
 * for texts. A caller's text then stands for one that the server would send back.
 */
export function readsPlainTexts({ driver, options }: DataSource): boolean {
  const { types } = (driver as { readonly postgres?: { readonly types?: Partial<TypeParsers> } }).postgres ?? {}
  const { extra } = options as { readonly extra?: { readonly types?: unknown } }
  if (typeof types?.getTypeParser !== 'function' || extra?.types !== undefined) return false
  // Of a format that does not exist, every type has the parser of those that have none.
  const none = types.getTypeParser(0, '')
  return types.getTypeParser(TEXT, 'text') === none && types.getTypeParser(VARCHAR, 'text') === none
}

interface Selected {
  readonly dataSource: DataSource
  readonly declaration: Declaration
  readonly select: readonly ColumnMetadata[]
}

/** The text columns that a row gives back as they were sent, by their database names. */
export function echoedTexts({ declaration, select, dataSource }: Selected, { types }: ReadyTable): readonly string[] {
  if (!readsPlainTexts(dataSource)) return []
  const selected = new Set(select.map(({ databaseName }) => databaseName))
  const names = declaration.table.text.map(({ name }) => name)
  return names.filter((name) => selected.has(name) && PLAIN.test(types.get(name)?.declared ?? ''))
}
