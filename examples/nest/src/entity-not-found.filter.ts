import { type ArgumentsHost, Catch, NotFoundException } from '@nestjs/common'
import { BaseExceptionFilter } from '@nestjs/core'
import { EntityNotFoundError } from 'typeorm'

/** TypeORM's message holds the condition, which is nobody's business. */
@Catch(EntityNotFoundError)
export class EntityNotFoundFilter extends BaseExceptionFilter {
  override catch(_error: EntityNotFoundError, host: ArgumentsHost): void {
    super.catch(new NotFoundException(), host)
  }
}
