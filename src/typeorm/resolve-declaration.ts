import { createHash } from 'node:crypto'
import { type EntityMetadata, getMetadataArgsStorage } from 'typeorm'
import { fitName, plainName } from '../sql/identifier'
import { indexCondition } from '../sql/alter'
import { checkExpression, type TextTable } from '../sql/text-table'
import { deleteDateColumn, findHidden, requireString, scopeColumns, textColumn } from './declared-columns'
import { normalizerLabel } from '../text/normalizer'
import type { RawDeclaration } from './options'
import { dataSourceOf, type Declaration } from './registry'

/**
 * What a decorator said, against the entity's metadata: its columns, and the names of everything in the database.
 * Reads only; `attachDeclaration` makes it take effect.
 *
 * @param target the class that the decorator stands on
 * @throws DeclarationError where it contradicts the entity
 */
export function resolveDeclaration(metadata: EntityMetadata, raw: RawDeclaration, target: unknown): Declaration {
  const where = `@UniqueText on ${metadata.name}.${raw.name}`
  const text = raw.columns.map(({ property, prefix, normalizer }) => {
    const column = textColumn(metadata, property, where)
    const transformers = [column.transformer ?? []].flat()
    if (transformers.length === 0) requireString(column, where)
    return { column, prefix, normalizer, transformed: transformers.length > 0, transformers }
  })
  const scope = raw.scope.flatMap((property) => scopeColumns(metadata, property, where))
  const deleted = raw.ignoreDeleted ? deleteDateColumn(metadata, where).databaseName : undefined
  const hidden = findHidden(metadata, raw)
  const names = hidden.map(({ databaseName }) => databaseName) as [string, string, string]
  const named = { ...raw, indexName: indexName(metadata, raw, target) }
  const table = textTable(metadata, named, { text, scope, names, deleted })
  return {
    name: raw.name,
    metadata,
    target,
    text,
    scope,
    hidden: hidden.map(({ column }) => column),
    table,
    lookup: raw.lookup && fitName(`${table.index}_lookup`),
    parse: raw.parse,
    normalizeValues: raw.normalizeValues,
  }
}

/** A schema has a name once: it stays with the entity that it was given to, and a subclass with its own table has another. */
function indexName(metadata: EntityMetadata, raw: RawDeclaration, target: unknown): string | undefined {
  if (target === metadata.target) return raw.indexName
  const isTable = getMetadataArgsStorage().tables.some((one) => one.target === target && one.type !== 'entity-child')
  return isTable ? undefined : raw.indexName
}

interface ResolvedColumns extends Pick<Declaration, 'scope'> {
  readonly text: readonly (Declaration['text'][number] & { readonly prefix: string })[]
  /** Database names of hash, hash number and flag. */
  readonly names: readonly [string, string, string]
  /** Database name of the delete date. */
  readonly deleted: string | undefined
}

function textTable(metadata: EntityMetadata, raw: RawDeclaration, resolved: ResolvedColumns): TextTable {
  const { tableName } = metadata
  const { text, scope, names, deleted } = resolved
  const [hash, number, chained] = names
  const scopeNames = scope.map(({ databaseName }) => databaseName)
  const { namingStrategy } = dataSourceOf(metadata)
  const table: Omit<TextTable, 'check'> = {
    name: raw.name,
    schema: foreignSchema(metadata),
    table: tableName,
    text: text.map(({ column, prefix }) => ({ name: column.databaseName, prefix })),
    scope: scopeNames,
    hash,
    number,
    chained,
    index: fitName(
      raw.indexName ?? namingStrategy.indexName(tableName, [...scopeNames, hash, number], indexCondition({ deleted })),
    ),
    digest: raw.digest,
    nullable: text.every(({ column }) => column.isNullable),
    immutable: raw.immutable,
    maxChainLength: raw.maxChainLength,
    deleted,
    normalizers: text.map(({ normalizer }) => normalizerLabel(normalizer)),
    ...(raw.spread === undefined ? {} : { spread: raw.spread }),
    guard: plainName('unique_text', tableName, raw.name),
  }
  return { ...table, check: checkName(tableName, checkExpression(table)) }
}

/** undefined if TypeORM leaves the schema out too. */
export function foreignSchema(metadata: EntityMetadata): string | undefined {
  const { searchSchema } = dataSourceOf(metadata).driver as unknown as { searchSchema?: string }
  return metadata.schema === undefined || metadata.schema === searchSchema ? undefined : metadata.schema
}

/** TypeORM compares checks by their names only, so the name changes with the expression. */
function checkName(table: string, expression: string): string {
  return `CHK_${createHash('sha1').update(`${table} ${expression}`).digest('hex').slice(0, 26)}`
}
