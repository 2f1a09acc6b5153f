import type { DataSource, EntityManager, EntityMetadata, EntityTarget, ObjectLiteral } from 'typeorm'
import {
  dataSourceOf,
  type Declaration,
  declarationsOf,
  isOrExtends,
  type NameDeclaration,
  namesOfEntity,
  type NumberDeclaration,
  tableNumbers,
} from '../registry/registry'
import { requireManager } from '../rows/call-arguments'

/** An entity, and what it declares, of its own and inherited. */
export interface Entity {
  readonly dataSource: DataSource
  readonly metadata: EntityMetadata
  readonly texts: readonly Declaration[]
  readonly names: readonly NameDeclaration[]
  readonly numbers: readonly NumberDeclaration[]
}

/** @throws DeclarationError for anything but an EntityManager */
export function entityOf(manager: EntityManager, target: EntityTarget<ObjectLiteral>): Entity {
  requireManager(manager)
  const dataSource = dataSourceOf(manager)
  const metadata = dataSource.getMetadata(target)
  return {
    dataSource,
    metadata,
    texts: declarationsOf(metadata),
    names: namesOfEntity(metadata),
    numbers: tableNumbers(metadata).filter((one) => isOrExtends(metadata.target, one.target)),
  }
}
