import { Module, ValidationPipe } from '@nestjs/common'
import { APP_FILTER, APP_PIPE } from '@nestjs/core'
import { TypeOrmModule } from '@nestjs/typeorm'
import { BookmarksModule } from './bookmarks/bookmarks.module.js'
import { dataSourceOptions } from './data-source.js'
import { EntityNotFoundFilter } from './entity-not-found.filter.js'
import { UniqueTextFilter } from './unique-text.filter.js'

@Module({
  imports: [TypeOrmModule.forRoot(dataSourceOptions), BookmarksModule],
  providers: [
    { provide: APP_FILTER, useClass: UniqueTextFilter },
    { provide: APP_FILTER, useClass: EntityNotFoundFilter },
    {
      provide: APP_PIPE,
      useFactory: () => new ValidationPipe({ whitelist: true, forbidNonWhitelisted: true, transform: true }),
    },
  ],
})
export class AppModule {}
