import type { EntityMetadata } from 'typeorm'
import { DeclarationError } from '../../errors'
import { entityTable } from '../../registry/declarations'
import { holderName, namesTable } from '../../registry/name-declarations'
import { dataSourceOf, namesOfTable, rootOf } from '../../registry/registry'
import { normalizerLabel } from '../../text/normalizer'
import type { HolderTable } from './fragments'

/** The table of an entity whose rows hold names. */
export function holderTable(metadata: EntityMetadata): HolderTable {
  const root = rootOf(metadata)
  const dataSource = dataSourceOf(root)
  return {
    ...entityTable(root),
    holder: holderName(root),
    primary: root.primaryColumns.map((column) => ({
      name: column.databaseName,
      type: dataSource.driver.normalizeType(column),
    })),
    names: namesOfTable(root).map(({ text, namespace, former }) => ({
      column: text.column.databaseName,
      namespace,
      former,
      normalizer: normalizerLabel(text.normalizer),
    })),
    of: namesTable(dataSource),
    citus: namesOfTable(root).find(({ citus }) => citus !== undefined)?.citus,
  }
}

/** Types whose JSON is the same in every session, and that a cast to the type's name alone restores. */
const KEY_TYPES =
  /^(?:smallint|integer|bigint|numeric|uuid|boolean|text|character(?: varying)?|date|timestamp with(?:out)? time zone|inet|cidr|macaddr)$/

/**
 * The table of names stores the key of each holder as JSON, and reads it with the type of its column.
 *
 * @throws DeclarationError for another type
 */
export function requireKeyTypes(metadata: EntityMetadata, where: string): void {
  const { driver } = dataSourceOf(metadata)
  for (const column of metadata.primaryColumns) {
    const type = driver.normalizeType(column)
    if (KEY_TYPES.test(type) && !column.isArray) continue
    throw new DeclarationError(
      `${where}: the primary key "${column.propertyPath}" cannot be of type ${type}${column.isArray ? '[]' : ''}. ` +
        `Use text, uuid or a number.`,
    )
  }
}
